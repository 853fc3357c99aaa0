/*
 * An application that only transmits: it gets packets from a mempool, and sends them to DPDK's null device, which frees them.
 */
#include <rte_config.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* Bytes of a packet: the minimum of Ethernet. */
enum { PACKET = 64 };

static uint16_t port;

/* Starts the null device with this many transmit queues; returns an error of DPDK, or 0. */
int stillpoint_transmit_begin(uint16_t queues)
{
    struct rte_eth_conf conf;
    int error = rte_eth_dev_get_port_by_name("net_null0", &port);

    memset(&conf, 0, sizeof conf);
    if (error == 0)
        error = rte_eth_dev_configure(port, 0, queues, &conf);
    for (uint16_t queue = 0; error == 0 && queue < queues; queue++)
        error = rte_eth_tx_queue_setup(port, queue, 512, SOCKET_ID_ANY, NULL);
    return error != 0 ? error : rte_eth_dev_start(port);
}

/* Makes a mempool of packets. Returns NULL if there is not enough memory, or no driver of this name. */
struct rte_mempool *stillpoint_transmit_pool(const char *name, const char *driver, unsigned count, unsigned cache)
{
    return rte_pktmbuf_pool_create_by_ops(name, count, cache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY, driver);
}

/* In each turn, gets a burst of packets, writes each, and transmits them. Returns false if the pool was exhausted, or if the device has
 * not accepted all packets. */
bool stillpoint_transmit(struct rte_mempool *pool, uint16_t queue, struct rte_mbuf **packets, uint16_t burst, uint64_t turns)
{
    static const char bytes[PACKET] = "stillpoint";

    for (uint64_t turn = 0; turn < turns; turn++) {
        uint16_t sent;

        if (rte_pktmbuf_alloc_bulk(pool, packets, burst) != 0)
            return false;
        for (uint16_t i = 0; i < burst; i++) {
            memcpy(rte_pktmbuf_mtod(packets[i], char *), bytes, PACKET);
            packets[i]->data_len = PACKET;
            packets[i]->pkt_len = PACKET;
        }
        sent = rte_eth_tx_burst(port, queue, packets, burst);
        if (sent < burst) {
            rte_pktmbuf_free_bulk(&packets[sent], burst - sent);
            return false;
        }
    }
    return true;
}

//! What one thread of a round does as a reader, with writes in between.

use std::sync::atomic::Ordering;

use stillpoint::rcu::{Guard, Protected, Region};

use crate::census::Object;
use crate::chest;
use crate::hands::Hands;
use crate::random::Random;
use crate::world::{Node, World, CELLS, KEYS, SLOTS};

/// How deeply regions of the same thread are nested.
const DEPTH: usize = if cfg!(miri) { 1 } else { 2 };
/// There are fewer actions than this within one region.
const LENGTH: usize = if cfg!(miri) { 8 } else { 30 };

pub(crate) fn any(world: &World, hands: &mut Hands, random: &mut Random, depth: usize) {
    if depth > DEPTH {
        return hands.write(world, random);
    }
    match random.below(8) {
        0..3 => sections(world, hands, random, depth),
        3 | 4 => reports(world, hands, random, depth),
        5 => binds(world, hands, random),
        6 => chest::in_any_order(world, random),
        _ => (0..random.below(LENGTH)).for_each(|_| hands.write(world, random)),
    }
}

/// Guards and protected loads, dropped in any order, with anything in between.
fn sections(world: &World, hands: &mut Hands, random: &mut Random, depth: usize) {
    let mut reader = world.domain.reader();
    let mut guards: Vec<Guard<'_>> = Vec::new();
    let mut nodes: Vec<Protected<'_, Node>> = Vec::new();
    let mut objects: Vec<Protected<'_, Object>> = Vec::new();
    for _ in 0..random.below(LENGTH) {
        match random.below(10) {
            0 => guards.push(reader.pin()),
            1 if !guards.is_empty() => drop(guards.swap_remove(random.below(guards.len()))),
            2 => nodes.extend(world.cells[random.below(CELLS)].protect(&reader)),
            3 if !nodes.is_empty() => drop(nodes.swap_remove(random.below(nodes.len()))),
            4 => objects.extend(world.array.protect(random.below(SLOTS), &reader)),
            5 if !objects.is_empty() => drop(objects.swap_remove(random.below(objects.len()))),
            6 if !guards.is_empty() => {
                let guard = &guards[random.below(guards.len())];
                looks(world, guard, random, |random| any(world, hands, random, depth + 1));
            }
            7 if !nodes.is_empty() => {
                // The parent is protected, and so is its cell.
                let parent = &nodes[random.below(nodes.len())];
                let child = parent.next.protect(&reader);
                hands.write(world, random);
                child.iter().for_each(|child| child.object.verify());
                if random.below(4) == 0 {
                    drop(parent.next.replace(world.node(random)));
                }
            }
            8 => any(world, hands, random, depth + 1),
            _ => hands.write(world, random),
        }
        nodes.iter().for_each(|node| node.object.verify());
        objects.iter().for_each(|object| object.verify());
    }
    if random.below(2) == 0 {
        drop(guards);
        nodes.iter().for_each(|node| node.object.verify());
        drop(objects);
        drop(nodes);
    } else {
        drop((nodes, objects, guards));
    }
    looks_up(world, &mut reader, hands, random);
}

/// Loads everything, does something else, and verifies that everything is still alive.
fn looks<R: Region>(world: &World, region: &R, random: &mut Random, meanwhile: impl FnOnce(&mut Random)) {
    let node = world.cells[random.below(CELLS)].load(region);
    let child = node.and_then(|node| node.next.load(region));
    let object = world.array.load(random.below(SLOTS), region);
    let table = world.table.within(region);
    let entry = table.get(&(random.below(KEYS) as u64));
    let entries: Vec<_> = match random.below(4) {
        0 => table.iter().map(|(_, object)| object).collect(),
        _ => Vec::new(),
    };
    // SAFETY: unlinked objects are retired to the domain of this region. Acquire: pairs with the swap in `relink`.
    let pooled = unsafe { world.pooled.load(Ordering::Acquire).as_ref() };
    meanwhile(random);
    node.into_iter().chain(child).for_each(|node| node.object.verify());
    object.into_iter().chain(entry).chain(entries).for_each(Object::verify);
    pooled.into_iter().for_each(crate::world::Pooled::verify);
}

/// Reads entries of the table, each under its own guard.
fn looks_up(world: &World, reader: &mut stillpoint::rcu::Reader, hands: &mut Hands, random: &mut Random) {
    let mut lookup = world.table.reader(reader);
    for _ in 0..random.below(4) {
        let key = random.below(KEYS) as u64;
        if let Some(entry) = lookup.get(&key) {
            hands.write(world, random);
            entry.value().verify();
        }
        let guard = lookup.pin();
        let found = guard.get_many(&[key, key + 1, key + 2]);
        hands.write(world, random);
        found.into_iter().flatten().for_each(Object::verify);
    }
}

/// Regions without a guard, which end with a report or by going offline.
fn reports(world: &World, hands: &mut Hands, random: &mut Random, depth: usize) {
    let mut reader = world.domain.qsbr_reader();
    for _ in 0..random.below(LENGTH / 3) {
        looks(world, &reader, random, |random| any(world, hands, random, depth + 1));
        match random.below(6) {
            0 => reader.offline(|| any(world, hands, random, depth + 1)),
            1 => {
                let offline = reader.go_offline();
                any(world, hands, random, depth + 1);
                reader = offline.go_online();
            }
            _ => reader.quiescent(),
        }
    }
    if random.below(4) == 0 {
        drop(reader.go_offline());
    }
}

/// Reads the array, bound to a reader of either kind.
fn binds(world: &World, hands: &mut Hands, random: &mut Random) {
    let (mut reader, mut qsbr) = (world.domain.reader(), world.domain.qsbr_reader());
    let mut bound = world.array.bind(&mut reader);
    let mut reported = world.array.bind_qsbr(&mut qsbr);
    for _ in 0..random.below(6) {
        if let Some(object) = bound.protect(random.below(SLOTS)) {
            hands.write(world, random);
            object.verify();
        }
        let guard = bound.pin();
        let (one, other) = (guard.load(random.below(SLOTS)), reported.load(random.below(SLOTS)));
        hands.write(world, random);
        one.into_iter().chain(other).for_each(Object::verify);
        drop(guard);
        reported.quiescent();
    }
}

//! Charts as pictures.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::{Across, Bars, Chart, Content, Curve, Dots, Number, number};
use crate::error::Stop;

/// The background of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// White.
    Light,
    /// Nearly black.
    Dark,
}

/// The colours of a picture.
struct Colours {
    ground: RGBColor,
    text: RGBColor,
    faint: RGBColor,
    /// The colours of the contenders, in the order of the chart. People with any kind of colour vision can distinguish them
    /// (Okabe and Ito, 2008). From the ninth contender on they repeat, with other [`DASHES`] and markers, or [`TONES`].
    contenders: [RGBColor; 8],
}

const LIGHT: Colours = Colours {
    ground: WHITE,
    text: RGBColor(30, 30, 30),
    faint: RGBColor(225, 225, 225),
    contenders: [
        RGBColor(0, 114, 178),
        RGBColor(213, 94, 0),
        RGBColor(0, 158, 115),
        RGBColor(204, 121, 167),
        RGBColor(230, 159, 0),
        RGBColor(86, 180, 233),
        RGBColor(120, 110, 0),
        RGBColor(90, 90, 90),
    ],
};

const DARK: Colours = Colours {
    ground: RGBColor(22, 24, 29),
    text: RGBColor(230, 230, 230),
    faint: RGBColor(58, 62, 70),
    contenders: [
        RGBColor(86, 180, 233),
        RGBColor(240, 128, 48),
        RGBColor(40, 200, 150),
        RGBColor(225, 150, 190),
        RGBColor(240, 190, 60),
        RGBColor(150, 160, 250),
        RGBColor(240, 228, 66),
        RGBColor(170, 170, 170),
    ],
};

impl Ground {
    fn colours(self) -> &'static Colours {
        match self {
            Self::Light => &LIGHT,
            Self::Dark => &DARK,
        }
    }
}

/// Dashes of curves and the gaps between them, in points, for each turn of the palette. The first turn has whole lines.
const DASHES: [Option<(i32, i32)>; 3] = [None, Some((8, 4)), Some((2, 3))];
/// The opacity of a bar, for each turn of the palette. From the second turn on, bars have an outline. At a half, a bar would look
/// like another colour of the palette.
const TONES: [f64; 3] = [1.0, 0.25, 0.0];

const WIDTH: u32 = 960;
const HEIGHT: u32 = 520;
/// The width of the contenders' names at the right.
const LEGEND: u32 = 270;
const LINE: i32 = 20;
/// The width of names at the left.
const NAMES: i32 = 150;
/// The width of a contender's line or bar beside its name.
const SIGN: i32 = 28;
/// More points than this along a parameter do not each get a tick.
const TICKS: usize = 10;
/// Two ticks are at least this share of the axis apart.
const APART: f64 = 0.04;
const FONT: &str = "sans-serif";

/// The chart as SVG.
///
/// # Errors
/// When it cannot be drawn, which is a defect.
pub fn svg(chart: &Chart, ground: Ground) -> Result<String, Stop> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
    Picture { chart, colours: ground.colours() }.draw(&area)?;
    drop(area);
    Ok(text)
}

/// Registers a font as "sans-serif", since a machine may have no fonts.
fn bring_letters() {
    static ONCE: Once = Once::new();
    // This fails only for a file that is not a font. The tests would notice: nothing would be drawn.
    ONCE.call_once(|| drop(register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)));
}

struct Picture<'c> {
    chart: &'c Chart,
    colours: &'static Colours,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failure = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

impl Picture<'_> {
    fn draw(&self, area: &Area<'_>) -> Result<(), Stop> {
        bring_letters();
        let failed = |error: Failure| Stop::Failed(format!("cannot draw {}: {error}", self.chart.file()));
        area.fill(&self.colours.ground).map_err(failed)?;
        let area = area.margin(6, 0, 0, 0);
        let area = area.titled(&self.chart.title(), self.text(17)).map_err(failed)?;
        let (plot, legend) = area.split_horizontally(WIDTH - LEGEND);
        let names = match &self.chart.content {
            Content::Curves(curves) => {
                self.curves(&plot, curves).map_err(failed)?;
                curves.iter().map(|curve| (curve.name.as_str(), false)).collect()
            }
            Content::Bars { names, bars } => {
                self.bars(&plot, names, bars).map_err(failed)?;
                bars.iter().map(|bars| (bars.name.as_str(), bars.published)).collect()
            }
            Content::Dots { names, dots } => {
                self.dots(&plot, names, dots).map_err(failed)?;
                dots.iter().map(|dots| (dots.name.as_str(), false)).collect()
            }
        };
        self.legend(&legend, names).map_err(failed)?;
        area.present().map_err(failed)
    }

    fn text(&self, points: i32) -> TextStyle<'static> {
        (FONT, points).into_font().color(&self.colours.text)
    }

    fn colour(&self, at: usize) -> RGBColor {
        self.colours.contenders[at % self.colours.contenders.len()]
    }

    fn stroke(&self, at: usize) -> ShapeStyle {
        self.colour(at).stroke_width(2)
    }

    /// How often the palette was used up before this contender.
    fn turn(&self, at: usize) -> usize {
        at / self.colours.contenders.len()
    }

    /// The dashes of a curve and the gaps between them, in points; `None` for a whole line.
    fn dash(&self, at: usize) -> Option<(i32, i32)> {
        DASHES[self.turn(at) % DASHES.len()]
    }

    /// The styles of a bar, drawn one above the other.
    fn tones(&self, at: usize, published: bool) -> impl Iterator<Item = ShapeStyle> {
        let colour = if published { self.colours.text } else { self.colour(at) };
        let tone = if published { 0.0 } else { TONES[self.turn(at) % TONES.len()] };
        let outline = (tone < 1.0).then(|| colour.stroke_width(1));
        (tone > 0.0).then(|| colour.mix(tone).filled()).into_iter().chain(outline)
    }

    fn curves(&self, area: &Area<'_>, curves: &[Curve]) -> Result<(), Failure> {
        let figure = self.chart.figure;
        let Across::Numbers { of, title, logarithmic } = figure.across else { return Ok(()) };
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let ends = curves.iter().flat_map(|curve| &curve.band).flat_map(|&(_, from, to)| [from, to]);
        let up = points().map(|point| point.1).chain(ends);
        let up = Axis::new(range(up, figure.up.logarithmic), figure.up.logarithmic);
        let length = range(points().map(|point| point.0), logarithmic);
        let ticks = match of {
            Number::Param(_) => ticks(points().map(|point| point.0).collect(), &length, logarithmic),
            Number::Metric(_) => None,
        };
        let mut across = Axis::new(length, logarithmic);
        across.ticks = Some(ticks.unwrap_or_else(|| across.key_points(TICKS)));
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .axis_style(self.colours.text)
            .bold_line_style(self.colours.faint)
            .light_line_style(TRANSPARENT)
            .label_style(self.text(12))
            .axis_desc_style(self.text(13))
            .x_desc(title)
            .y_desc(figure.up_title())
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| figure.amount(*value))
            .draw()?;
        for (at, curve) in curves.iter().enumerate().filter(|(_, curve)| curve.band.len() > 1) {
            let below = curve.band.iter().map(|&(x, from, _)| (x, from));
            let above = curve.band.iter().rev().map(|&(x, _, to)| (x, to));
            let style = self.colour(at).mix(0.18).filled();
            chart.draw_series([Polygon::new(below.chain(above).collect::<Vec<_>>(), style)])?;
        }
        for (at, curve) in curves.iter().enumerate() {
            let style = self.stroke(at);
            let points = curve.points.iter().copied();
            match self.dash(at) {
                Some((dash, gap)) => {
                    chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?;
                }
                None => {
                    chart.draw_series(LineSeries::new(points, style))?;
                }
            }
            for &point in &curve.points {
                self.mark(area, at, chart.plotting_area().map_coordinate(&point))?;
            }
        }
        Ok(())
    }

    /// A marker at a point of a curve. Curves of the same colour have different markers.
    fn mark(&self, area: &Area<'_>, at: usize, place: (i32, i32)) -> Result<(), Failure> {
        let (base, style) = (area.get_base_pixel(), self.stroke(at));
        let ((x, y), size) = ((place.0 - base.0, place.1 - base.1), 4);
        let full = style.filled();
        match (at + self.turn(at)) % 4 {
            0 => area.draw(&Circle::new((x, y), size, full)),
            1 => area.draw(&Rectangle::new([(x - size, y - size), (x + size, y + size)], full)),
            2 => area.draw(&TriangleMarker::new((x, y), size + size / 4, full)),
            _ => area.draw(&Cross::new((x, y), size, style)),
        }
    }

    fn bars(&self, area: &Area<'_>, names: &[String], bars: &[Bars]) -> Result<(), Failure> {
        let logarithmic = self.chart.figure.up.logarithmic;
        let mut up = range(bars.iter().flat_map(|bars| &bars.values).copied().flatten(), logarithmic);
        if logarithmic {
            // A bar stands on a power of ten, whose tick must not fall off the axis by rounding.
            up.start = 10f64.powf(up.start.log10().floor()) * 0.999;
        }
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..names.len() as f64, Axis::new(up, logarithmic))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .axis_style(self.colours.text)
            .bold_line_style(self.colours.faint)
            .light_line_style(TRANSPARENT)
            .label_style(self.text(12))
            .axis_desc_style(self.text(13))
            .y_desc(self.chart.figure.up_title())
            .y_label_formatter(&|value| self.chart.figure.amount(*value))
            .draw()?;
        let floor = chart.plotting_area().get_y_range().start;
        // The bars of a name take four fifths of its place; a contender without a bar there takes none.
        for name in 0..names.len() {
            let standing =
                || bars.iter().enumerate().filter_map(|(at, bars)| Some((at, bars, bars.values[name]?)));
            let wide = 0.8 / standing().count().max(1) as f64;
            for (place, (at, bars, height)) in standing().enumerate() {
                let from = name as f64 + 0.1 + place as f64 * wide;
                let corners = [(from, floor), (from + wide * 0.92, height)];
                chart.draw_series(
                    self.tones(at, bars.published).map(|style| Rectangle::new(corners, style)),
                )?;
            }
        }
        let base = area.get_base_pixel();
        let label = self.text(11).pos(Pos::new(HPos::Center, VPos::Top));
        for (at, name) in names.iter().enumerate() {
            let (x, y) = chart.plotting_area().map_coordinate(&(at as f64 + 0.5, floor));
            // If there are many names, neighbours are on different lines.
            let line = if names.len() > 4 { at as i32 % 3 } else { 0 };
            area.draw_text(name, &label, (x - base.0, y - base.1 + 4 + 12 * line))?;
        }
        Ok(())
    }

    fn dots(&self, area: &Area<'_>, names: &[String], dots: &[Dots]) -> Result<(), Failure> {
        let logarithmic = self.chart.figure.up.logarithmic;
        let values = dots.iter().flat_map(|dots| &dots.points).map(|point| point.1);
        // The line at 1 is always in the picture.
        let across = Axis::new(range(values.chain([1.0]), logarithmic), logarithmic);
        let bottom = names.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(NAMES)
            .build_cartesian_2d(across, bottom..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .axis_style(self.colours.text)
            .bold_line_style(self.colours.faint)
            .light_line_style(TRANSPARENT)
            .label_style(self.text(12))
            .axis_desc_style(self.text(13))
            .x_desc(self.chart.figure.up_title())
            .x_label_formatter(&|value| number(*value))
            .draw()?;
        let ends = chart.plotting_area().get_x_range();
        let between = |name: usize| [(ends.start, name as f64), (ends.end, name as f64)];
        let faint = self.colours.faint.stroke_width(1);
        chart.draw_series((1..names.len()).map(|name| PathElement::new(between(name), faint)))?;
        let style = self.colours.text.stroke_width(1);
        chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, bottom)], style)])?;
        // Each kind has its own line within the place of a name.
        for (at, of_kind) in dots.iter().enumerate() {
            let line = 0.2 + 0.6 * (at as f64 + 0.5) / dots.len() as f64;
            for &(name, value) in &of_kind.points {
                let place = chart.plotting_area().map_coordinate(&(value, name as f64 + line));
                self.mark(area, at, place)?;
            }
        }
        let base = area.get_base_pixel();
        let label = self.text(12).pos(Pos::new(HPos::Right, VPos::Center));
        for (at, name) in names.iter().enumerate() {
            let (x, y) = chart.plotting_area().map_coordinate(&(ends.start, at as f64 + 0.5));
            area.draw_text(name, &label, (x - base.0 - 8, y - base.1))?;
        }
        Ok(())
    }

    /// The names of the contenders, each behind its line, bar or marker.
    fn legend(&self, area: &Area<'_>, names: Vec<(&str, bool)>) -> Result<(), Failure> {
        let style = self.text(12).pos(Pos::new(HPos::Left, VPos::Center));
        let height = area.dim_in_pixel().1 as i32;
        let line = LINE.min(height / names.len().max(1) as i32);
        let base = area.get_base_pixel();
        for (at, (name, published)) in names.into_iter().enumerate() {
            let (x, y) = (8, 18 + line * at as i32);
            let ends = [(x, y), (x + SIGN, y)];
            match &self.chart.content {
                Content::Curves(_) => match self.dash(at) {
                    Some((dash, gap)) => {
                        area.draw(&DashedPathElement::new(ends, dash, gap, self.stroke(at)))?;
                    }
                    None => area.draw(&PathElement::new(ends, self.stroke(at)))?,
                },
                Content::Bars { .. } => {
                    let corners = [(x, y - 5), (x + SIGN, y + 5)];
                    self.tones(at, published)
                        .try_for_each(|style| area.draw(&Rectangle::new(corners, style)))?;
                }
                Content::Dots { .. } => {}
            }
            if !matches!(self.chart.content, Content::Bars { .. }) {
                self.mark(area, at, (base.0 + x + SIGN / 2, base.1 + y))?;
            }
            area.draw_text(name, &style, (x + SIGN + 8, y))?;
        }
        Ok(())
    }
}

/// An axis of either kind.
struct Axis {
    scale: Scale,
    /// Where its ticks are, if they are not where the library would put them.
    ticks: Option<Vec<f64>>,
}

enum Scale {
    Linear(RangedCoordf64),
    Logarithmic(LogCoord<f64>),
}

impl Axis {
    fn new(range: std::ops::Range<f64>, logarithmic: bool) -> Self {
        let scale = if logarithmic {
            Scale::Logarithmic(range.log_scale().into())
        } else {
            Scale::Linear(range.into())
        };
        Self { scale, ticks: None }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match &self.scale {
            Scale::Linear(scale) => scale.map(value, limit),
            Scale::Logarithmic(scale) => scale.map(value, limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match (&self.ticks, &self.scale) {
            (Some(ticks), _) => ticks.clone(),
            (None, Scale::Linear(scale)) => scale.key_points(hint),
            (None, Scale::Logarithmic(scale)) => scale.key_points(hint),
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        match &self.scale {
            Scale::Linear(scale) => scale.range(),
            Scale::Logarithmic(scale) => scale.range(),
        }
    }
}

/// The places that were measured, of which those that are too close to the one before get no tick. `None` if there are too many.
fn ticks(mut places: Vec<f64>, axis: &std::ops::Range<f64>, logarithmic: bool) -> Option<Vec<f64>> {
    places.sort_by(f64::total_cmp);
    places.dedup();
    let length = |from: f64, to: f64| if logarithmic { (to / from).ln() } else { to - from };
    let apart = APART * length(axis.start, axis.end);
    (places.len() <= TICKS).then(|| {
        places.dedup_by(|next, last| length(*last, *next) < apart);
        places
    })
}

/// From the least to the most of all values, with 0 where the axis is not logarithmic, and some room.
fn range(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> std::ops::Range<f64> {
    let (least, most) =
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max));
    if logarithmic {
        return least * 0.8..most * 1.25;
    }
    let (least, most) = (least.min(0.0) * 1.05, most.max(0.0) * 1.05);
    // An axis has some length even if all is 0.
    least..if most > least { most } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stand_where_it_was_measured_if_there_are_few() {
        let axis = 0.8..40.0;
        assert_eq!(ticks(vec![8.0, 1.0, 1.0, 32.0, 2.0], &axis, true), Some(vec![1.0, 2.0, 8.0, 32.0]));
        assert_eq!(ticks(vec![1.0, 1.01, 2.0], &axis, true), Some(vec![1.0, 2.0]), "too close for two names");
        assert_eq!(ticks((1..=11).map(f64::from).collect(), &axis, false), None);
    }
}

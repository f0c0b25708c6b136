//! A report as a picture (SVG): latencies for each size of write, and bytes per second over time.
//!
//! Both have a logarithmic scale where disks differ by orders. Not here: any figure that is not in
//! the report.

use std::error::Error;
use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{Block, Report};
use super::table::size;

/// Pixels.
const SIZE: (u32, u32) = (960, 760);
const MARGIN: u32 = 16;
const LABELS: u32 = 64;
const TITLE: (&str, u32) = ("sans-serif", 18);
const SMALL: (&str, u32) = ("sans-serif", 13);
/// Distinct also for readers with red-green blindness.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(150, 120, 0),
];

type Drawn = Result<(), Box<dyn Error>>;
type Percentile = (&'static str, fn(&Block) -> f64);
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws.
///
/// # Errors
/// What the drawing library says.
pub(crate) fn svg(report: &Report) -> io::Result<String> {
    let mut text = String::new();
    draw(report, &mut text).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(text)
}

fn draw(report: &Report, text: &mut String) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(SIZE.1 / 2);
    latencies(report, &upper)?;
    rates(report, &lower)?;
    root.present()?;
    Ok(())
}

fn colour(index: usize) -> RGBColor {
    COLOURS.get(index % COLOURS.len()).copied().unwrap_or(BLACK)
}

/// One line for each way of writing and percentile, over the sizes.
fn latencies(report: &Report, area: &Area<'_>) -> Drawn {
    let mut sizes: Vec<u64> = report.blocks.iter().map(|block| block.block_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let all = report.blocks.iter().flat_map(|block| [block.latency.p50, block.latency.p999]);
    let (low, high) = range(all);
    let last = sizes.len().saturating_sub(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("Write and sync, {}", report.place.folder.display()), TITLE)
        .margin(MARGIN)
        .x_label_area_size(LABELS / 2)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(-0.2..last + 1.4, (low..high).log_scale())?;
    let name = |at: &f64| -> String {
        let near = sizes.iter().zip(0_u32..).find(|(_, i)| (f64::from(*i) - at).abs() < 0.01);
        near.map(|(bytes, _)| size(*bytes)).unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * sizes.len() + 2)
        .x_label_formatter(&name)
        .y_label_formatter(&|us| format!("{us:.0}"))
        .y_desc("microseconds")
        .light_line_style(TRANSPARENT)
        .label_style(SMALL)
        .draw()?;
    let mut modes: Vec<&str> = report.blocks.iter().map(|block| block.mode).collect();
    modes.dedup();
    let percentiles: [Percentile; 3] = [
        ("p50", |block| block.latency.p50),
        ("p99", |block| block.latency.p99),
        ("p99.9", |block| block.latency.p999),
    ];
    let lines = modes.iter().flat_map(|mode| percentiles.map(|percentile| (*mode, percentile)));
    for (index, (mode, (percentile, of))) in lines.enumerate() {
        let style = colour(index).stroke_width(2);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (bytes, at) in sizes.iter().zip(0_u32..) {
            let of_mode = report.blocks.iter().find(|b| b.mode == mode && b.block_bytes == *bytes);
            points.extend(of_mode.map(|block| (f64::from(at), of(block).max(low))));
        }
        let dots = points.iter().map(|point| Circle::new(*point, 3, style.filled()));
        chart.draw_series(dots)?;
        chart
            .draw_series(LineSeries::new(points.clone(), style))?
            .label(format!("{mode} {percentile}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .label_font(SMALL)
        .draw()?;
    Ok(())
}

/// One line for each way of writing and size, over the seconds of its slice.
fn rates(report: &Report, area: &Area<'_>) -> Drawn {
    let megabytes = |rate: u64| rate as f64 / 1e6;
    let all = report.blocks.iter().flat_map(|b| b.rates_bytes_per_s.iter().copied());
    let (low, high) = range(all.map(megabytes));
    let longest = report.blocks.iter().map(|block| block.rates_bytes_per_s.len()).max();
    // Width for the names of the lines at the right.
    let seconds = longest.unwrap_or(1).max(1) as f64 * 1.35;
    let mut chart = ChartBuilder::on(area)
        .caption("Bytes per second, of each second", TITLE)
        .margin(MARGIN)
        .x_label_area_size(LABELS / 2)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(0.0..seconds, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("MB/s")
        .x_label_formatter(&|at| if at.fract() == 0.0 { format!("{at:.0}") } else { String::new() })
        .y_label_formatter(&|rate| format!("{rate:.1}"))
        .light_line_style(TRANSPARENT)
        .label_style(SMALL)
        .draw()?;
    for (index, block) in report.blocks.iter().enumerate() {
        let style = colour(index).stroke_width(2);
        let rates = block.rates_bytes_per_s.iter().zip(1_u32..);
        let points: Vec<(f64, f64)> =
            rates.map(|(rate, at)| (f64::from(at), megabytes(*rate).max(low))).collect();
        let dots = points.iter().map(|point| Circle::new(*point, 3, style.filled()));
        chart.draw_series(dots)?;
        chart
            .draw_series(LineSeries::new(points.clone(), style))?
            .label(format!("{} {}", block.mode, size(block.block_bytes)))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .label_font(SMALL)
        .draw()?;
    Ok(())
}

/// Lowest and highest with some air, both above zero: the scales are logarithmic.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::MAX, 0.1_f64);
    for value in values.filter(|value| *value > 0.0) {
        low = low.min(value);
        high = high.max(value);
    }
    (low.min(high).max(0.01) * 0.7, high * 1.5)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn the_chart_names_each_way_size_and_percentile() {
        let svg = svg(&sample()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for part in ["direct-dsync p99.9", "buffered-sync 1 MiB", "microseconds", "MB/s", "4 KiB"] {
            assert!(svg.contains(part), "{part}");
        }
    }

    #[test]
    fn a_second_without_writes_can_be_drawn() {
        let mut report = sample();
        for block in &mut report.blocks {
            block.rates_bytes_per_s = vec![0];
        }
        assert!(svg(&report).unwrap().contains("MB/s"));
        assert_eq!(range(std::iter::empty()), (0.1 * 0.7, 0.1 * 1.5));
    }
}

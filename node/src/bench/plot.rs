//! The latency distribution as a picture: plain SVG, percentiles on a logarithmic axis, so that the tail has room.
//!
//! Pure. Called by `cli::bench` and by the comparison.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 70.0;
const COLOURS: [&str; 6] = ["#1f6feb", "#d1570a", "#1a7f37", "#8250df", "#bf3989", "#57606a"];

/// A line of the picture.
pub struct Series<'a> {
    /// What the legend calls it.
    pub name: &'a str,
    /// Nanoseconds.
    pub latency: &'a Histogram<u64>,
}

/// Draws the series. Those without a value are left out.
pub fn svg(title: &str, series: &[Series<'_>]) -> String {
    let series: Vec<_> = series.iter().filter(|s| !s.latency.is_empty()).collect();
    let largest = series.iter().map(|s| s.latency.len()).max().unwrap_or(1);
    let axes = Axes::around(&series, largest);
    let mut out = String::new();
    let head = format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"28\" \
         font-size=\"16\" fill=\"#1f2328\">{}</text>",
        escaped(title)
    );
    line(&mut out, head);
    axes.grid(&mut out);
    for (n, s) in series.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let points: Vec<String> = axes.points(s.latency).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        let path = format_args!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\" points=\"{points}\"/>"
        );
        line(&mut out, path);
        #[allow(clippy::cast_precision_loss, reason = "a handful of lines")]
        let y = TOP + 18.0 + 20.0 * n as f64;
        let legend = format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\" \
             fill=\"#1f2328\">{} ({} operations)</text>",
            LEFT + 12.0,
            y - 6.0,
            LEFT + 32.0,
            escaped(s.name),
            s.latency.len()
        );
        line(&mut out, legend);
    }
    out.push_str("</svg>\n");
    out
}

/// Nines across, powers of ten up.
struct Axes {
    /// How many nines the axis shows: 2 ends at 99 %.
    nines: f64,
    /// Logarithms of milliseconds.
    low: f64,
    high: f64,
}

impl Axes {
    #[allow(clippy::cast_precision_loss, reason = "for a picture")]
    fn around(series: &[&Series<'_>], largest: u64) -> Self {
        let nines = (largest as f64).log10().ceil().clamp(2.0, 6.0);
        let least = series.iter().map(|s| s.latency.min()).min().unwrap_or(1_000_000).max(1_000);
        let most = series.iter().map(|s| s.latency.max()).max().unwrap_or(1_000_000).max(1_000);
        let low = (least as f64 / 1e6).log10().floor();
        let high = (most as f64 / 1e6).log10().ceil().max(low + 1.0);
        Self { nines, low, high }
    }

    /// Across: `nines` is -log10(1 - quantile).
    fn x(&self, nines: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (nines / self.nines).clamp(0.0, 1.0)
    }

    fn y(&self, ms: f64) -> f64 {
        let share = (ms.log10() - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share.clamp(0.0, 1.0)
    }

    /// Steps of a twentieth of a nine, up to what so many values can tell.
    #[allow(clippy::cast_precision_loss, reason = "for a picture")]
    fn points<'a>(&'a self, latency: &'a Histogram<u64>) -> impl Iterator<Item = (f64, f64)> + 'a {
        let known = (latency.len() as f64).log10().min(self.nines);
        let steps = (self.nines * 20.0) as u32;
        (0..=steps).map(|n| f64::from(n) / 20.0).filter(move |n| *n <= known).map(move |nines| {
            let quantile = 1.0 - 10f64.powf(-nines);
            let ms = latency.value_at_quantile(quantile) as f64 / 1e6;
            (self.x(nines), self.y(ms.max(1e-3)))
        })
    }

    fn grid(&self, out: &mut String) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let marks = [
            (0.0, "0"),
            (0.301, "50"),
            (1.0, "90"),
            (2.0, "99"),
            (3.0, "99.9"),
            (4.0, "99.99"),
            (5.0, "99.999"),
            (6.0, "99.9999"),
        ];
        for (nines, label) in marks.iter().filter(|(n, _)| *n <= self.nines) {
            let x = self.x(*nines);
            let mark = format_args!(
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#d0d7de\"/><text x=\"{x:.1}\" \
                 y=\"{:.1}\" text-anchor=\"middle\" fill=\"#59636e\">{label}</text>",
                bottom + 20.0
            );
            line(out, mark);
        }
        let mut decade = self.low;
        while decade <= self.high {
            for step in 1..10 {
                let ms = 10f64.powf(decade) * f64::from(step);
                if ms.log10() > self.high + 1e-9 {
                    break;
                }
                let y = self.y(ms);
                let strong = step == 1;
                let colour = if strong { "#d0d7de" } else { "#f0f3f6" };
                let rule = format_args!(
                    "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"{colour}\"/>"
                );
                line(out, rule);
                if strong || (self.high - self.low <= 2.0 && matches!(step, 2 | 5)) {
                    let label = format_args!(
                        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#59636e\">{}</text>",
                        LEFT - 8.0,
                        y + 4.0,
                        milliseconds(ms)
                    );
                    line(out, label);
                }
            }
            decade += 1.0;
        }
        let names = format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#1f2328\">percentile of operations (%)</text>\n<text \
             x=\"20\" y=\"{}\" text-anchor=\"middle\" fill=\"#1f2328\" transform=\"rotate(-90 20 {})\">latency \
             (ms)</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 20.0,
            f64::midpoint(TOP, bottom),
            f64::midpoint(TOP, bottom)
        );
        line(out, names);
    }
}

/// As people write it: 0.05, 0.2, 10.
fn milliseconds(ms: f64) -> String {
    if ms >= 0.999 { format!("{ms:.0}") } else { format!("{ms:.3}").trim_end_matches('0').to_owned() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a String takes what it is given");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::meter::histogram;

    #[test]
    fn a_picture_has_axes_with_units_and_a_line_for_each_series() {
        let mut latency = histogram();
        for n in 1..=10_000u64 {
            latency.record(n * 1_000).unwrap();
        }
        let empty = histogram();
        let series = [Series { name: "a < b", latency: &latency }, Series { name: "none", latency: &empty }];
        let picture = svg("append", &series);
        assert_eq!(picture.matches("<polyline").count(), 1);
        for needed in
            ["latency (ms)", "percentile of operations (%)", ">99.99<", ">0.01<", ">10<", "a &lt; b"]
        {
            assert!(picture.contains(needed), "{needed}");
        }
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
        assert!(svg("nothing", &[]).ends_with("</svg>\n"));
    }
}

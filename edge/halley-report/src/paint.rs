//! Colours that follow the reader's scheme.
//!
//! Plotters writes colours as `#RRGGBB`. Here each role is drawn in a colour of its own that means
//! nothing, and the finished SVG has it replaced by the style sheet's variable of that role, which
//! is one colour on light and another on dark ground.

use std::fmt::Write;

use plotters::style::RGBColor;

/// What a colour is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Text, and the lines of marks.
    Ink,
    /// The grid.
    Grid,
    /// A part or a series.
    Series(Hue),
}

/// The colours of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hue {
    /// The brain.
    Brain,
    /// The edge.
    Edge,
    /// The kernel.
    Kernel,
    /// The load clients.
    Clients,
    /// The publisher.
    Publisher,
    /// The rest.
    Rest,
    /// Somebody else's curve, the first.
    Other,
    /// And another.
    Another,
}

/// Hue, its variable, its colour on light ground and on dark.
const HUES: [(Hue, &str, &str, &str); 8] = [
    (Hue::Brain, "brain", "#9b3d8f", "#d58bcb"),
    (Hue::Edge, "edge", "#c2570c", "#f59e58"),
    (Hue::Kernel, "kernel", "#5f6b7a", "#93a1b3"),
    (Hue::Clients, "clients", "#2f6fb0", "#6fb1ee"),
    (Hue::Publisher, "publisher", "#2e7d4f", "#6cc890"),
    (Hue::Rest, "rest", "#a8a29a", "#6d6862"),
    (Hue::Other, "other", "#b01e3c", "#ff7d95"),
    (Hue::Another, "another", "#8a6d00", "#dcbb3f"),
];

const INK: u8 = 1;
const GRID: u8 = 2;
const HUE_FIRST: u8 = 16;

impl Paint {
    /// The colour to draw with; [`themed`] replaces it.
    #[must_use]
    pub fn stand_in(self) -> RGBColor {
        let index = match self {
            Self::Ink => INK,
            Self::Grid => GRID,
            Self::Series(hue) => {
                let position = HUES.iter().position(|entry| entry.0 == hue).unwrap_or(0);
                HUE_FIRST + position as u8
            }
        };
        RGBColor(1, 2, index)
    }

    fn text(self) -> String {
        let RGBColor(red, green, blue) = self.stand_in();
        format!("#{red:02X}{green:02X}{blue:02X}")
    }
}

impl Hue {
    /// The style sheet's variable.
    #[must_use]
    pub fn variable(self) -> &'static str {
        HUES.iter().find(|entry| entry.0 == self).map_or("rest", |entry| entry.1)
    }
}

/// Puts variables in the place of stand-ins.
#[must_use]
pub fn themed(svg: &str) -> String {
    let fixed = [(Paint::Ink, "ink"), (Paint::Grid, "grid")];
    let hues = HUES.iter().map(|entry| (Paint::Series(entry.0), entry.1));
    fixed.into_iter().chain(hues).fold(svg.to_owned(), |svg, (paint, variable)| {
        svg.replace(&paint.text(), &format!("var(--{variable})"))
    })
}

/// The variables, for both schemes.
#[must_use]
pub fn style_sheet() -> String {
    let list = |colour: fn(&(Hue, &str, &'static str, &'static str)) -> &'static str| {
        HUES.iter().fold(String::new(), |mut text, entry| {
            // Writing to a String can't fail.
            let _ = write!(text, "--{}:{};", entry.1, colour(entry));
            text
        })
    };
    let light = list(|entry| entry.2);
    let dark = list(|entry| entry.3);
    format!(
        ":root{{color-scheme:light dark;--ground:#ffffff;--ink:#1d2329;--grid:#d9dee3;{light}}}\n\
         @media(prefers-color-scheme:dark){{\
         :root{{--ground:#14181c;--ink:#dde3e9;--grid:#333b43;{dark}}}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stand_in_becomes_its_variable() {
        for (hue, variable, ..) in HUES {
            let svg = format!("<path fill=\"{}\"/>", Paint::Series(hue).text());
            assert_eq!(themed(&svg), format!("<path fill=\"var(--{variable})\"/>"));
            assert!(style_sheet().matches(&format!("--{variable}:")).count() == 2);
        }
    }
}

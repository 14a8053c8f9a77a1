//! The page around the plots. Everything that comes from a file is escaped.

use std::fmt::Write;

use crate::chart::Plot;
use crate::paint::style_sheet;
use crate::record::Record;
use crate::scale::clock;

const STYLE: &str = "\
body{background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif;\
max-width:62rem;margin:2rem auto;padding:0 1rem}\n\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .2rem}\n\
table{border-collapse:collapse;width:100%}\
td,th{border-bottom:1px solid var(--grid);padding:.25rem .6rem .25rem 0;text-align:left;\
vertical-align:top}\
td+td{font-variant-numeric:tabular-nums}\n\
svg{width:100%;height:auto;display:block}\
figure{margin:0}p.note,p.legend{margin:.1rem 0;font-size:.85rem;opacity:.9}\n\
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 0}\
.legend span+span{margin-left:1em}\n\
.stopped{border-left:4px solid var(--other);padding-left:1rem}\
code{font-size:.9em}\n";

/// The page.
#[must_use]
pub fn render(record: &Record, plots: &[Plot]) -> String {
    let found = &record.found;
    let title = escaped(&found.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{}{STYLE}</style>\n<h1>{title}</h1>\n",
        style_sheet()
    );
    // Writing to a String can't fail.
    for paragraph in &found.about {
        let _ = writeln!(page, "<p>{}</p>", inline(paragraph));
    }
    if let Some(stopped) = &found.stopped {
        let (phase, why) = (escaped(&stopped.phase), inline(&stopped.why));
        let _ = writeln!(page, "<p class=\"stopped\"><b>It stopped at: {phase}.</b> {why}</p>");
    }
    push_rows(&mut page, &found.rows);
    push_marks(&mut page, record);
    for plot in plots {
        push_plot(&mut page, plot);
    }
    page
}

fn push_rows(page: &mut String, rows: &[[String; 3]]) {
    page.push_str("<table>\n<tr><th>figure<th>reached<th>asked\n");
    for [what, reached, asked] in rows {
        let (what, reached, asked) = (inline(what), inline(reached), inline(asked));
        let _ = writeln!(page, "<tr><td>{what}<td>{reached}<td>{asked}");
    }
    page.push_str("</table>\n");
}

fn push_marks(page: &mut String, record: &Record) {
    if record.marks.is_empty() {
        return;
    }
    let length_s = record.samples.last().map_or(0.0, |sample| sample.t_s);
    page.push_str(
        "<h2>What happened</h2>\n<p class=\"note\">The numbers are those over the plots.",
    );
    page.push_str("</p>\n<ol>\n");
    for mark in &record.marks {
        let _ = writeln!(page, "<li>{}: {}", clock(mark.t_s, length_s), escaped(&mark.mark));
    }
    page.push_str("</ol>\n");
}

fn push_plot(page: &mut String, plot: &Plot) {
    let (title, note) = (escaped(plot.title), escaped(&plot.note));
    let _ = writeln!(page, "<figure>\n<h2>{title}</h2>");
    if !note.is_empty() {
        let _ = writeln!(page, "<p class=\"note\">{note}</p>");
    }
    page.push_str("<p class=\"legend\">");
    for (label, hue) in &plot.legend {
        let (label, variable) = (escaped(label), hue.variable());
        let key = format!("<i class=\"key\" style=\"background:var(--{variable})\"></i>");
        let _ = write!(page, "<span>{key}{label}</span> ");
    }
    // Inside HTML an SVG needs no namespace.
    let svg = plot.svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1).replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{title}\" "),
        1,
    );
    let _ = writeln!(page, "</p>\n{svg}</figure>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escaped, with Markdown's `**bold**` and `` `code` ``, which the table has for its other readers.
fn inline(text: &str) -> String {
    let pairs = |text: String, mark: &str, tag: &str| {
        let pieces: Vec<&str> = text.split(mark).collect();
        if pieces.len() % 2 == 0 {
            return text;
        }
        let wrap = |(index, piece): (usize, &&str)| match index % 2 {
            0 => (*piece).to_owned(),
            _ => format!("<{tag}>{piece}</{tag}>"),
        };
        pieces.iter().enumerate().map(wrap).collect()
    };
    pairs(pairs(escaped(text), "**", "b"), "`", "code")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Found, Stopped};

    #[test]
    fn marked_words_are_set_and_markup_from_files_is_not() {
        assert_eq!(inline("**a** `b<c`"), "<b>a</b> <code>b&lt;c</code>");
        assert_eq!(inline("2 ** 3"), "2 ** 3");
    }

    #[test]
    fn the_page_says_where_a_run_stopped_and_needs_no_other_file() {
        let found = Found {
            title: "A <million>".to_owned(),
            about: vec!["Made by `make`".to_owned()],
            rows: vec![["connections".to_owned(), "5".to_owned(), String::new()]],
            stopped: Some(Stopped { phase: "connect".to_owned(), why: "no memory".to_owned() }),
            references: Vec::new(),
        };
        let record = Record { found, samples: Vec::new(), marks: Vec::new() };
        let page = render(&record, &[]);
        assert!(page.contains("<h1>A &lt;million&gt;</h1>"));
        assert!(page.contains("It stopped at: connect.</b> no memory"));
        for other in ["http:", "https:", "<script", "<link", "url("] {
            assert!(!page.contains(other), "{other}");
        }
    }
}

//! Manual pages of files, made from docs/.

use crate::pages::around;
use crate::pages::blocks::{Block, render};
use crate::pages::markdown;
use crate::pages::title::title;

pub struct FilePage {
    pub name: &'static str,
    about: &'static str,
    directory: &'static str,
    text: &'static str,
}

pub const ALL: [FilePage; 3] = [
    FilePage {
        name: "haul-config",
        about: "settings of haul and names of ends, ~/.config/haul/config.toml",
        directory: "use",
        text: include_str!("../../../../docs/use/config.md"),
    },
    FilePage {
        name: "haul-policy",
        about: "what copies may ask of a shared network, /etc/haul/policy.toml",
        directory: "operate",
        text: include_str!("../../../../docs/operate/policy.md"),
    },
    FilePage {
        name: "haul-networks",
        about: "how haul treats connections of which networks, /etc/haul/networks.toml",
        directory: "operate",
        text: include_str!("../../../../docs/operate/networks.md"),
    },
];

const MANUAL_PAGES: [(&str, &str); 6] = [
    ("config", "haul-config(5)"),
    ("policy", "haul-policy(5)"),
    ("networks", "haul-networks(5)"),
    ("serve", "haul-serve(1)"),
    ("cp", "haul-cp(1)"),
    ("places", "haul-ls(1)"),
];

impl FilePage {
    pub fn page(&self) -> Vec<u8> {
        let mut page = title(self.name, 5, self.about).render();
        let description = vec![Block::Section("DESCRIPTION".to_owned())];
        let text = markdown::blocks(self.text, self.directory, &MANUAL_PAGES);
        let end = [around::places(self.name), around::see_also(self.name, 5)].concat();
        page.push_str(&render(&[description, text, end].concat()).to_roff());
        page.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(page: &str) -> String {
        let mut filled = String::new();
        let mut is_literal = false;
        for line in page.lines() {
            match line {
                ".nf" => is_literal = true,
                ".fi" => is_literal = false,
                _ if is_literal => {}
                _ => {
                    filled.push_str(line);
                    filled.push('\n');
                }
            }
        }
        assert!(!is_literal, "{page}");
        filled
    }

    #[test]
    fn no_page_has_marks_of_markdown() {
        for page in ALL {
            let text = String::from_utf8(page.page()).unwrap();
            let filled = filled(&text);
            for line in filled.lines() {
                let marks = ["`", "**", "](", "| ", " |", "\\_", ".md#"];
                assert!(marks.iter().all(|mark| !line.contains(mark)), "{}: {line}", page.name);
                let leads = ["#", "|", "\\- ", "* ", "1. ", "> "];
                assert!(leads.iter().all(|lead| !line.starts_with(lead)), "{}: {line}", page.name);
            }
            assert!(!text.contains("```"), "{}", page.name);
        }
    }

    #[test]
    fn each_page_says_what_its_document_says() {
        let words = [
            ("haul-config", ["[defaults]", "haul config NAME"]),
            ("haul-policy", ["priority\\-rate\\-mbit", "on\\-raise"]),
            ("haul-networks", ["rto\\-min\\-ms", "connections\\-per\\-address"]),
        ];
        for ((name, words), page) in words.into_iter().zip(ALL) {
            assert_eq!(name, page.name);
            let text = String::from_utf8(page.page()).unwrap();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            for section in [".SH NAME\n", ".SH DESCRIPTION\n", ".SH FILES\n", ".SH \"SEE ALSO\"\n"] {
                assert!(text.contains(section), "{name}: {section}");
            }
        }
    }
}

//! Reads a store's answers: elements with their text, one after the other.

use std::io;

use haul_store::Time;
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use quick_xml::reader::Reader;

use crate::http_client::client::invalid;

/// Answers of S3 have at most five levels.
const MAX_DEPTH: usize = 16;

/// Calls `on` at the end of each element, with its path and text.
pub(super) fn read(xml: &[u8], mut on: impl FnMut(&[&str], &str)) -> io::Result<()> {
    let text = std::str::from_utf8(xml).map_err(|_| no_xml())?;
    let mut reader = Reader::from_str(text);
    let mut open: Vec<(String, String)> = Vec::new();
    let mut is_any = false;
    loop {
        let piece = match reader.read_event().map_err(|_| no_xml())? {
            Event::Eof if open.is_empty() && is_any => return Ok(()),
            Event::Eof => return Err(no_xml()),
            Event::Start(element) => {
                if open.len() == MAX_DEPTH {
                    return Err(no_xml());
                }
                is_any = true;
                open.push((element.local_name().as_ref().to_owned(), String::new()));
                continue;
            }
            Event::Empty(element) => {
                is_any = true;
                open.push((element.local_name().as_ref().to_owned(), String::new()));
                end(&mut open, &mut on);
                continue;
            }
            Event::End(_) => {
                end(&mut open, &mut on);
                continue;
            }
            Event::Text(text) => text.xml_content(XmlVersion::Implicit1_0).into_owned(),
            Event::CData(text) => text.xml_content(XmlVersion::Implicit1_0).into_owned(),
            Event::GeneralRef(entity) => match entity.resolve_char_ref().map_err(|_| no_xml())? {
                Some(character) => character.to_string(),
                None => resolve_predefined_entity(&entity.xml_content(XmlVersion::Implicit1_0))
                    .ok_or_else(no_xml)?
                    .to_owned(),
            },
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => continue,
            Event::DocType(_) => return Err(no_xml()),
        };
        if let Some((_, text)) = open.last_mut() {
            text.push_str(&piece);
        }
    }
}

fn end(open: &mut Vec<(String, String)>, on: &mut impl FnMut(&[&str], &str)) {
    let Some((_, text)) = open.last() else { return };
    let path: Vec<&str> = open.iter().map(|(name, _)| name.as_str()).collect();
    on(&path, text);
    open.pop();
}

fn no_xml() -> io::Error {
    invalid("the store's answer is no XML".to_owned())
}

/// Reads a time as stores write it (RFC 3339).
pub(super) fn time(text: &str) -> Option<Time> {
    let time: jiff::Timestamp = text.trim().parse().ok()?;
    let (s, ns) = (time.as_second(), time.subsec_nanosecond());
    // Before 1970 the fraction is negative.
    let (s, ns) = if ns < 0 { (s - 1, ns + 1_000_000_000) } else { (s, ns) };
    Some(Time { s, ns: u32::try_from(ns).ok()? })
}

pub(super) fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(xml: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        read(xml.as_bytes(), |path, text| found.push((path.join("/"), text.to_owned()))).ok()?;
        Some(found)
    }

    #[test]
    fn elements_come_with_their_path_and_text() {
        let xml = "<?xml version=\"1.0\"?>\n<A xmlns=\"x\"><B>1 &lt; 2&#x21;</B><C/><D><![CDATA[<&>]]></D></A>";
        let owned = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        assert_eq!(
            elements(xml).unwrap(),
            [owned("A/B", "1 < 2!"), owned("A/C", ""), owned("A/D", "<&>"), owned("A", "")]
        );
    }

    #[test]
    fn what_is_no_xml_or_brings_entities_of_its_own_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(20), "</a>".repeat(20));
        for xml in ["", "<a>", "<a></b>", "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>", "<a>&x;</a>", &deep] {
            assert_eq!(elements(xml), None, "{xml}");
        }
    }
}

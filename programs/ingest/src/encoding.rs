//! Decodes the bytes of an XML document.

use std::borrow::Cow;

use anyhow::{Context, Result, bail, ensure};
use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, mem};

/// Decodes a document by its byte order mark, otherwise by its declaration, otherwise as UTF-8.
pub(crate) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        let text = decode_as(encoding, &bytes[mark..])?;
        if let Some(label) = declared(text.as_bytes()) {
            let (found, said) = (encoding.name(), is_utf_16(encoding));
            let declared = known(&label)?;
            ensure!(
                declared == encoding || (said && is_utf_16(declared)),
                "the byte order mark is that of {found}, but the declaration says {label:?}"
            );
        }
        return Ok(text);
    }
    let Some(label) = declared(bytes) else {
        return decode_as(UTF_8, bytes);
    };
    let encoding = known(&label)?;
    ensure!(
        !is_utf_16(encoding),
        "the declaration says {label:?}, but is not in UTF-16"
    );
    let label = label.to_ascii_lowercase();
    // The web's labels take these for windows-1252.
    match label.contains("1252") {
        false if encoding == WINDOWS_1252 && label.starts_with(['a', 'u']) => decode_ascii(bytes),
        false if encoding == WINDOWS_1252 => Ok(mem::decode_latin1(bytes)),
        _ => decode_as(encoding, bytes),
    }
}

fn known(label: &str) -> Result<&'static Encoding> {
    Encoding::for_label(label.as_bytes())
        .with_context(|| format!("the encoding {label:?} is not known"))
}

fn is_utf_16(encoding: &'static Encoding) -> bool {
    [UTF_16LE, UTF_16BE].contains(&encoding)
}

fn decode_as<'a>(encoding: &'static Encoding, bytes: &'a [u8]) -> Result<Cow<'a, str>> {
    if let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(bytes) {
        return Ok(text);
    }
    // Once more, to learn where.
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let size = decoder.max_utf8_buffer_length_without_replacement(bytes.len());
    let mut text = String::with_capacity(size.unwrap_or_default());
    match decoder.decode_to_string_without_replacement(bytes, &mut text, true) {
        (DecoderResult::InputEmpty, _) => Ok(text.into()),
        _ => bail!("it is not valid {}, {}", encoding.name(), end_of(&text)),
    }
}

fn decode_ascii(bytes: &[u8]) -> Result<Cow<'_, str>> {
    let ascii = Encoding::ascii_valid_up_to(bytes);
    let text = mem::decode_latin1(&bytes[..ascii]);
    ensure!(
        ascii == bytes.len(),
        "it is not valid US-ASCII, {}",
        end_of(&text)
    );
    Ok(text)
}

/// The place behind the text.
fn end_of(text: &str) -> String {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default();
    format!("line {line}, column {}", column.chars().count() + 1)
}

/// The encoding that the XML declaration names, if there is one.
fn declared(bytes: &[u8]) -> Option<String> {
    let declaration = bytes
        .strip_prefix(b"<?xml")
        .filter(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))?
        .split(|byte| *byte == b'>')
        .next()?;
    let declaration = String::from_utf8_lossy(declaration);
    let (_, value) = declaration.split_once("encoding")?;
    let label = value.split(['"', '\'']).nth(1).unwrap_or_default();
    Some(label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        decode(bytes).unwrap_err().to_string()
    }

    #[test]
    fn reads_utf8_with_and_without_mark() {
        assert_eq!(decode("<a>é</a>".as_bytes()).unwrap(), "<a>é</a>");
        assert_eq!(decode("\u{feff}<a/>".as_bytes()).unwrap(), "<a/>");
    }

    #[test]
    fn reads_what_the_declaration_or_the_mark_names() {
        let latin = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>";
        assert!(decode(latin).unwrap().ends_with("<a>é</a>"));
        let utf16 = b"\xff\xfe<\0a\0/\0>\0";
        assert_eq!(decode(utf16).unwrap(), "<a/>");
    }

    #[test]
    fn refuses_unknown_encodings_and_names_the_place_of_wrong_bytes() {
        assert_eq!(
            refusal(b"<?xml version=\"1.0\" encoding=\"klingon\"?><a/>"),
            "the encoding \"klingon\" is not known"
        );
        assert_eq!(
            refusal(b"<a>\n\xc3\xbc\xc3\x9f\xff</a>"),
            "it is not valid UTF-8, line 2, column 3"
        );
        assert_eq!(
            refusal(b"<?xml version='1.0' encoding='ascii'?>\n<a>\xe9</a>"),
            "it is not valid US-ASCII, line 2, column 4"
        );
        assert_eq!(
            refusal(b"<?xml version='1.0' encoding='Shift_JIS'?>\n<a>\xff</a>"),
            "it is not valid Shift_JIS, line 2, column 4"
        );
    }

    #[test]
    fn refuses_a_mark_that_contradicts_the_declaration() {
        assert_eq!(
            refusal(b"\xef\xbb\xbf<?xml version='1.0' encoding='ISO-8859-1'?><a/>"),
            "the byte order mark is that of UTF-8, but the declaration says \"ISO-8859-1\""
        );
        assert_eq!(
            refusal(b"<?xml version='1.0' encoding='UTF-16'?><a/>"),
            "the declaration says \"UTF-16\", but is not in UTF-16"
        );
    }
}

//! Narrow and wide, light and dark.

use diesel_locks::{Semaphore, SemaphoreExt};
use serde_json::{Value, json};

use super::page::Page;

/// The elements that stick out of the window at the right, and the texts that stick out of their place.
const OUTSIDE: &str = "
    const width = document.documentElement.clientWidth;
    const out = [...document.body.querySelectorAll('*')].filter((element) =>
        element.checkVisibility() && !element.closest('.lane, .for-screen-readers, thead')
        && element.getBoundingClientRect().right > width + 0.5);
    out.push(...[...document.querySelectorAll('td, dd, dt, li, p, h2, h3')].filter((element) =>
        element.checkVisibility() && !element.closest('.for-screen-readers') && element.scrollWidth > element.clientWidth + 1));
    if (document.documentElement.scrollWidth > width) out.push(document.documentElement);
    return out.map((element) => element.outerHTML.slice(0, 200));";

/// The texts whose contrast to what is behind them is below 4.5 to 1, as WCAG 2 counts it.
const FAINT: &str = r"
    const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
    const luminance = (colour) => {
        const [red, green, blue] = channels(colour).slice(0, 3).map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (channels(colour)[3] !== 0) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const texts = [...document.body.querySelectorAll('*')].filter((element) =>
        element.checkVisibility({ visibilityProperty: true }) && !element.closest('noscript')
        && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
    return texts.flatMap((element) => {
        const [dark, light] = [luminance(getComputedStyle(element).color), luminance(behind(element))].sort((a, b) => a - b);
        const contrast = (light + 0.05) / (dark + 0.05);
        return contrast < 4.5 ? [`${contrast.toFixed(2)} ${element.outerHTML.slice(0, 100)}`] : [];
    });";

#[test]
fn page_fits_and_can_be_read_narrow_and_wide_light_and_dark() {
    let mut page = Page::on_sqlite(&[]);
    let long = "a-name-without-any-blank-".repeat(8);
    for (name, permits, holder) in [
        ("collate", 3, "node-1"),
        ("collate", 3, &long),
        (&long, 1, "m\u{202e}irrored"),
    ] {
        page.hold(&Semaphore::new(name, permits), holder);
    }
    let released = page.acquire(&Semaphore::from_static("collate", 3), "node-3");
    page.conn.release_slot(released).expect("released");
    page.wait_for_holder(&long, 1, "mU+202Eirrored");
    page.browser.click("#handovers summary");

    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        for width in [360, 1280] {
            page.browser.show_as(width, 800, scheme);
            for dialog in [false, true] {
                if dialog {
                    page.browser.click(".slots button:not(.absent)");
                }
                let outside = page.browser.run(OUTSIDE, &[]);
                assert_eq!(outside, json!([]), "{width} {scheme}, dialog: {dialog}");
                let faint = page.browser.run(FAINT, &[]);
                assert_eq!(faint, json!([]), "{width} {scheme}, dialog: {dialog}");
            }
            page.browser.click("#dialog-cancel");
        }
        let ground = "return getComputedStyle(document.body).backgroundColor";
        grounds.push(page.browser.run(ground, &[]));
    }
    assert_ne!(grounds[0], grounds[1]);
    page.assert_console_is_empty();
}

#[test]
fn cards_of_narrow_screens_are_rows_for_screen_readers() {
    let mut page = Page::on_sqlite(&[]);
    page.hold(&Semaphore::from_static("collate", 1), "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    for width in [360, 1280] {
        page.browser.show_as(width, 800, "light");
        for (selector, role, name) in [
            (".slots", "table", "Slots of collate"),
            (".slots tbody tr", "row", ""),
            (".slots tbody td", "cell", ""),
            (".slots thead th:nth-child(2)", "columnheader", "Holder"),
            (".lane", "image", "Holders in the last minute: now node-1"),
            (
                ".slots button",
                "button",
                "Release slot 1 of collate, held by node-1",
            ),
        ] {
            let (shown_role, shown_name) = page.browser.accessible(selector);
            assert_eq!(shown_role, role, "{selector} {width}");
            assert!(
                name.is_empty() || shown_name == name,
                "{selector} {shown_name}"
            );
        }
    }
}

#[test]
fn nothing_moves_by_itself_if_less_motion_is_preferred() {
    let page = Page::on_sqlite(&[]);
    page.browser.emulate("prefers-reduced-motion", "reduce");
    let moving = "document.getElementById('connection').dataset.state = 'reconnecting'; \
         return [...document.querySelectorAll('*')].some((element) => getComputedStyle(element).animationName !== 'none')";
    assert_eq!(page.browser.run(moving, &[]), Value::Bool(false));
}

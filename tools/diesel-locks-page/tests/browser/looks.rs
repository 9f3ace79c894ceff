//! How the page looks with nothing, and with much, in narrow and wide windows, light and dark.

use std::time::Duration;

use diesel_locks::prelude::*;
use serde_json::json;

use super::page::Page;

/// Nothing is wider than the window, and the text has a contrast to what is behind it.
fn assert_looks(page: &Page) {
    for width in [390, 768, 1280] {
        for (scheme, is_dark) in [("light", false), ("dark", true)] {
            page.browser.look(width, scheme);
            let fits = "return document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(page.browser.run(fits, &[]), json!(true), "{width} {scheme}");
            let dark = "return getComputedStyle(document.body).color === 'rgb(255, 255, 255)'";
            assert_eq!(
                page.browser.run(dark, &[]),
                json!(is_dark),
                "{width} {scheme}"
            );
        }
    }
    page.assert_console_is_empty();
}

/// Acquires a slot for longer than the test takes, and keeps it.
fn hold(page: &mut Page, semaphore: &Semaphore, holder: &str) {
    let lease = LeaseOptions::new(Duration::from_secs(3600)).holder(holder);
    let slot = page.conn.acquire_slot(semaphore, lease, Wait::No);
    drop(slot.expect("a free slot"));
}

#[test]
fn empty_page_fits() {
    assert_looks(&Page::on_sqlite());
}

#[test]
fn hostile_names_stay_in_their_places() {
    let mut page = Page::on_sqlite();
    let long = "w".repeat(255);
    let spaced = format!("reports:{}", "of a long name ".repeat(16));
    let names = [
        "<script>alert(1)</script>",
        "\"quotes\" 'and' `more`",
        "\u{202e}txet desrever",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}: \u{5e2}\u{5d5}\u{5dc}\u{5dd}",
        &long,
        &spaced,
    ];
    let series = names.map(|name| {
        // As an exporter writes it.
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        format!("diesel_locks_inside_requests{{kind=\"slot\",semaphore=\"{name}\"}} 3\n")
    });
    *page.service.metrics.lock().expect("unpoisoned") = series.concat();
    for name in names {
        hold(&mut page, &Semaphore::new(name, 2), name);
        page.wait_for_holder(name, 1, name);
    }
    page.wait_for_text("#history tbody tr:nth-child(6) small", "at most 3");
    let scripts = "return document.querySelectorAll('main script').length";
    assert_eq!(page.browser.run(scripts, &[]), json!(0));
    assert_looks(&page);
    for name in names {
        page.click_release(name, 1);
        page.confirm();
        page.wait_until_free(name, 1);
    }
}

#[test]
fn page_is_quick_with_1500_semaphores_and_500_holders() {
    let mut page = Page::on_sqlite();
    let names = (0..1500)
        .map(|number| format!("{}:{number:04}", ["document", "report", "mail"][number % 3]));
    let semaphores: Vec<_> = names.map(|name| Semaphore::new(name, 1)).collect();
    page.conn
        .register_semaphores(&semaphores)
        .expect("registered");
    for (number, semaphore) in semaphores.iter().enumerate().step_by(3) {
        hold(
            &mut page,
            semaphore,
            &format!("web-{}/{number}", number % 9),
        );
    }
    let shown = "return document.querySelectorAll('.slots tbody td:nth-child(3)').length === 500";
    page.browser.wait("500 holders", shown, &[]);
    page.open("");
    page.browser.wait("500 holders", shown, &[]);
    page.wait_for_text("#semaphores h2 small", "1,500 of 1,500 shown");
    // The time from the begin of the page, and the longest for which its script has blocked it, also while it was updated.
    let measured = "return new Promise((done) => { \
         const cell = document.querySelector('.slots tbody td:nth-child(3)'); \
         const texts = new Set(), begun = performance.now(); \
         let longest = 0; \
         new PerformanceObserver((list) => list.getEntries().forEach((task) => { longest = Math.max(longest, task.duration); })) \
             .observe({ type: 'longtask', buffered: true }); \
         new MutationObserver(() => { \
             texts.add(cell.textContent); \
             if (texts.size >= 3) done([begun, longest]); \
         }).observe(cell, { childList: true, characterData: true, subtree: true }); \
     })";
    let measured = page.browser.run(measured, &[]);
    let [begun, longest]: [f64; 2] = serde_json::from_value(measured).expect("numbers");
    println!(
        "1500 semaphores: shown {begun:.0} ms after the begin; the longest task took {longest:.0} ms"
    );
    assert!(longest < 1000.0, "{longest}");
    assert_looks(&page);
}

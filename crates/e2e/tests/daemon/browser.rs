//! A directory's page in Chromium, driven over a pipe.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use haul_e2e::{Run, needs, plant};
use serde_json::{Value, json};

use crate::web::Web;

/// Ends with the test, or after [`LONGEST_S`].
struct Browser {
    child: Child,
    words: File,
    events: BufReader<File>,
    calls: u64,
    /// The page, once there.
    page: Option<String>,
}

const LONGEST_S: &str = "60";

impl Browser {
    /// Makes its profile and pipes in `dir`; a zero ends each JSON message (`--remote-debugging-pipe`).
    fn start(dir: &Path) -> Browser {
        Run::new("mkfifo").args(["words", "events"]).current_dir(dir).run().expect(0);
        let script = "exec timeout -k 1 \"$0\" chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
             --no-first-run --disable-background-networking --user-data-dir=profile --remote-debugging-pipe \
             3<words 4>events";
        let child = Command::new("sh")
            .args(["-c", script, LONGEST_S])
            .current_dir(dir)
            .env("HOME", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is a shell");
        let words = File::options().write(true).open(dir.join("words")).expect("own pipe");
        let events = BufReader::new(File::open(dir.join("events")).expect("own pipe"));
        Browser { child, words, events, calls: 0, page: None }
    }

    fn message(&mut self) -> Value {
        let mut message = Vec::new();
        self.events.read_until(0, &mut message).expect("own pipe");
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&message).expect("it speaks JSON")
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": params});
        if let (Some(page), false) = (&self.page, method.starts_with("Browser.")) {
            call["sessionId"] = json!(page);
        }
        self.words.write_all(format!("{call}\0").as_bytes()).expect("own pipe");
        // Events come before the answer; the browser ends after a minute.
        loop {
            let mut message = self.message();
            if message["id"] == json!(self.calls) {
                let error = message["error"].take();
                return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
            }
        }
    }

    fn open(&mut self, url: &str) {
        let target = self.call("Target.createTarget", &json!({"url": url}))["targetId"].take();
        let page = self.call("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        self.page = page["sessionId"].as_str().map(str::to_owned);
    }

    fn sees(&mut self, expression: &str) -> Value {
        self.try_sees(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    fn try_sees(&mut self, expression: &str) -> Result<Value, Value> {
        let mut seen = self.try_call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}))?;
        Ok(seen["result"]["value"].take())
    }

    fn when_it_shows(&mut self, query: &str) {
        let expression =
            format!("document.readyState === 'complete' && location.search === '{query}' && !!document.forms[0]");
        assert!(
            (0..500).any(|_| self.try_sees(&expression) == Ok(json!(true)) || {
                std::thread::park_timeout(Duration::from_millis(20));
                false
            }),
            "{query}: {}",
            self.sees("document.documentElement.outerHTML")
        );
    }

    fn names(&mut self) -> Vec<String> {
        let names = self.sees("[...document.querySelectorAll('tbody .n a')].map(link => link.textContent)");
        serde_json::from_value(names).expect("a list")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn chromium_shows_sorts_and_downloads_from_the_page_of_a_directory() {
    needs!(Haul, Tool("chromium"), Tool("curl"), Tool("openssl"));
    let web = Web::new("");
    let (public, dir) = (web.stage.at("public"), web.stage.at("browser"));
    let down = dir.join("down");
    fs::create_dir_all(&down).expect("own directory");
    for (name, bytes) in [("a.vdif", 300), ("ü & 100%.vdif", 100), ("c <b>.vdif", 3_000_000)] {
        plant::file(&public.join(name), bytes, bytes);
    }
    let mut browser = Browser::start(&dir);
    browser.open(&format!("http://{}/", web.http));
    browser.when_it_shows("");
    assert_eq!(browser.names(), ["a.vdif", "c <b>.vdif", "ü & 100%.vdif"]);
    for (clicks, names) in [
        ("size", ["ü & 100%.vdif", "a.vdif", "c <b>.vdif"]),
        ("-size", ["c <b>.vdif", "a.vdif", "ü & 100%.vdif"]),
        ("name", ["a.vdif", "c <b>.vdif", "ü & 100%.vdif"]),
    ] {
        // A page being left cannot answer; its successor is looked at below.
        let _ = browser.try_sees(&format!("document.querySelector('button[value=\"{clicks}\"]').click()"));
        browser.when_it_shows(&format!("?sort={clicks}"));
        assert_eq!(browser.names(), names, "{clicks}");
    }
    // A phone's width is enough, and nothing comes from elsewhere.
    let phone = json!({"width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", &phone);
    assert_eq!(browser.sees("document.documentElement.scrollWidth <= 360"), json!(true));
    assert_eq!(browser.sees("document.querySelectorAll('script[src], img, link').length"), json!(0));
    // The filter is all that the page may run.
    let typed = "(() => { const type = text => { box.value = text; box.dispatchEvent(new Event('input')) }; \
                 type('VDIF'); type('<B'); const left = document.querySelectorAll('tbody tr:not([hidden])').length; \
                 type(''); return [box.hidden, left] })()";
    assert_eq!(browser.sees(typed), json!([false, 1]));
    browser.call(
        "Browser.setDownloadBehavior",
        &json!({"behavior": "allow", "downloadPath": &down, "eventsEnabled": true}),
    );
    browser.sees("document.querySelectorAll('tbody .n a')[2].click()");
    while browser.message()["params"]["state"] != json!("completed") {}
    let got = fs::read(down.join("ü & 100%.vdif")).expect("it is there, under its name");
    assert!(got == fs::read(public.join("ü & 100%.vdif")).expect("it is there"));
}

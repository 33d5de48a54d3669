//! The configuration determines which objects are made. An error names its file, section, key,
//! cause and remedy.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use allotment::sealed::Sealable;
use allotment::{ReadOnly, Sealed, Sealer};
use allotment_server::{
    Configuration, ConfigurationError, ConfigurationProblem, FromValue, Initialiser,
    ObjectFactories, Outcome, ReadOnlyObjects, RequestContext, Section, SharedObjects, Value,
    lock_all,
};

struct Route<'s> {
    path: &'s str,
    methods: &'s [&'s str],
    ttl: Duration,
}

// SAFETY: shared references to text, and a time.
unsafe impl ReadOnly for Route<'_> {}

impl Sealable for Route<'static> {
    type In<'s> = Route<'s>;
}

fn route<'s>(
    sealer: Sealer<'s>,
    section: &Section,
) -> Result<Route<'s>, allotment_server::FactoryError> {
    let mut methods = Vec::new();
    for method in section.get_or("methods", vec!["GET"])? {
        if method.chars().any(|character| !character.is_ascii_uppercase()) {
            return Err(section.wrong_value("methods", "methods in capital letters").into());
        }
        methods.push(sealer.try_alloc_str(method)?);
    }
    Ok(Route {
        path: sealer.try_alloc_str(section.get("path")?)?,
        methods: sealer.try_alloc_slice_copy(&methods)?,
        ttl: section.get_or("ttl", Duration::from_secs(60))?,
    })
}

fn factories() -> ObjectFactories {
    ObjectFactories::new()
        .read_only::<Route<'static>>("route", route)
        .read_only::<u64>("limit", |_, section| Ok(section.get("value")?))
        .shared("counter", |section| Ok(section.get_or("start", 0_u64)?))
        .shared("log", |section| Ok(vec![section.get::<String>("first")?]))
}

fn in_code() -> Configuration {
    let methods = vec!["GET", "HEAD"];
    Configuration::new("server.toml")
        .with(Section::new("route", "home").with("path", "/"))
        .with(
            Section::new("route", "about")
                .with("path", "/about")
                .with("methods", methods)
                .with("ttl", "10min"),
        )
        .with(Section::new("limit", "requests").with("value", 256))
        .with(Section::new("counter", "visits").with("start", 40))
        .with(Section::new("counter", "errors"))
        .with(Section::new("log", "").with("first", "begin"))
}

fn visit(
    context: &mut RequestContext<'_, Sealed<ReadOnlyObjects<'static>>, SharedObjects>,
    path: &'static str,
) -> (String, u64) {
    let objects = context.read_only().get();
    let found = objects.of_kind::<Route<'static>>("route").find(|(_, route)| route.path == path);
    let visits = context.shared().get::<u64>("counter", "visits").unwrap();
    let errors = context.shared().get::<u64>("counter", "errors").unwrap();
    let (mut visits, mut errors) = lock_all((visits, errors)).unwrap();
    match found {
        Some((name, _)) => {
            *visits += 1;
            (name.to_owned(), *visits)
        }
        None => {
            *errors += 1;
            (String::from("not found"), *errors)
        }
    }
}

fn check(configuration: &Configuration) {
    let initialised = Initialiser::new("data")
        .workers(2)
        .from_configuration(&factories(), configuration)
        .unwrap();
    {
        let read_only = initialised.read_only();
        let objects = read_only.get();
        assert_eq!((objects.len(), objects.is_empty()), (3, false));
        let about = objects.find::<Route<'static>>("route", "about").unwrap();
        assert_eq!((about.path, about.methods), ("/about", &["GET", "HEAD"][..]));
        assert_eq!(about.ttl, Duration::from_secs(600));
        let home = objects.get::<Route<'static>>("route", "home").unwrap();
        assert_eq!((home.methods, home.ttl), (&["GET"][..], Duration::from_secs(60)));
        let routes = objects.of_kind::<Route<'static>>("route").map(|(name, _)| name);
        assert_eq!(routes.collect::<Vec<_>>(), ["home", "about"], "as in the configuration");
        assert_eq!(objects.get::<u64>("limit", "requests"), Some(&256));
        assert!(objects.get::<u64>("route", "home").is_none(), "of another type");
        assert!(objects.get::<u64>("limit", "none").is_none());
        assert_eq!(objects.of_kind::<u64>("route").count(), 0);
        let error = objects.find::<u64>("route", "home").map(drop).unwrap_err();
        assert!(error.to_string().contains("route 'home' is a"), "{error}");
        let error = objects.find::<u64>("limit", "none").map(drop).unwrap_err();
        assert!(error.to_string().contains("needs a section [limit.none]"), "{error}");
        // All of them lie in one region.
        let region = allotment::owner_of(home).unwrap();
        assert_eq!((&*region.name, region.kind), ("read-only objects", "sealed"));
        for object in [&raw const *about.path, &raw const *home.path] {
            assert_eq!(allotment::owner_of(object.cast::<u8>()).unwrap().name, region.name);
        }
        let shared = initialised.shared();
        assert_eq!((shared.len(), shared.is_empty()), (3, false));
        assert_eq!(shared.of_kind::<u64>("counter").count(), 2);
        let log = shared.find::<Vec<String>>("log", "").unwrap();
        assert_eq!(log.with(|log| log.clone()), ["begin"]);
        let error = shared.find::<u8>("log", "").map(drop).unwrap_err();
        assert!(error.to_string().contains("not a u8"), "{error}");
    }
    let running = initialised.start(visit).unwrap();
    let ask = |path| running.submit(path).unwrap().wait();
    assert_eq!(ask("/about"), Outcome::Done(("about".into(), 41)));
    assert_eq!(ask("/nowhere"), Outcome::Done(("not found".into(), 1)));

    // The data is read again while the workers run: other routes, the same counters.
    let next = Configuration::new("next").with(Section::new("route", "new").with("path", "/new"));
    running.publish(factories().make_read_only(&next).unwrap());
    assert_eq!(ask("/new"), Outcome::Done(("new".into(), 42)));
    assert_eq!(ask("/about"), Outcome::Done(("not found".into(), 2)));
}

#[test]
fn a_configuration_in_code_tells_which_objects_are_made() {
    check(&in_code());
}

fn error_of(configuration: &Configuration) -> ConfigurationError {
    let made = Initialiser::new("wrong").from_configuration(&factories(), configuration);
    made.map(drop).unwrap_err()
}

fn text_of(section: Section) -> String {
    error_of(&Configuration::new("a.toml").with(section)).to_string()
}

#[test]
fn what_is_wrong_is_said_with_file_section_key_cause_and_remedy() {
    let home = || Section::new("route", "home").with("path", "/");
    assert_eq!(
        text_of(Section::new("route", "home")),
        "a.toml: section [route.home], key 'path': missing: add it"
    );
    assert_eq!(
        text_of(home().with("path", 7)),
        "a.toml: section [route.home], key 'path': is 7 (a whole number); wanted text"
    );
    assert_eq!(
        text_of(home().with("pth", "/")),
        "a.toml: section [route.home], key 'pth': not known here: remove it, or correct it to one of 'methods', 'path', 'ttl'"
    );
    assert_eq!(
        text_of(Section::new("rout", "home")),
        "a.toml: section [rout.home]: not known: remove it, or correct it to one of 'counter', 'limit', 'log', 'route'"
    );
    assert_eq!(
        text_of(home().with("methods", vec!["get"])),
        "a.toml: section [route.home], key 'methods': is [\"get\"] (a list); wanted methods in capital letters"
    );
    assert_eq!(
        text_of(Section::new("limit", "").with("value", -1)),
        "a.toml: section [limit], key 'value': is -1 (a whole number); wanted a whole number from 0 to 9223372036854775807"
    );
    let twice = Configuration::new("a.toml").with(home()).with(home());
    let error = error_of(&twice);
    assert!(matches!(error.problem(), ConfigurationProblem::Duplicate));
    assert_eq!(
        (error.origin(), error.section(), error.key()),
        ("a.toml", Some(("route", "home")), None)
    );
    assert!(error.to_string().ends_with("give it another name"), "{error}");
}

#[test]
fn a_factorys_own_error_is_kept_and_what_was_made_before_is_dropped() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&drops);
    let factories = ObjectFactories::new().shared("thing", move |section| match section.name() {
        "bad" => Err("the disk is gone".into()),
        _ => Ok(Counted(Arc::clone(&count))),
    });
    let sections = ["good", "better", "bad", "never"].map(|name| Section::new("thing", name));
    let configuration = sections.into_iter().fold(Configuration::new("x"), Configuration::with);
    let error = factories.make_shared(&configuration).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "x: section [thing.bad]: the object could not be made: the disk is gone"
    );
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the disk is gone");
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[test]
fn no_configuration_makes_no_objects() {
    let nothing = Configuration::new("empty");
    let initialised =
        Initialiser::new("empty").from_configuration(&ObjectFactories::new(), &nothing).unwrap();
    assert!(initialised.read_only().get().is_empty() && initialised.shared().is_empty());
    assert_eq!(format!("{:?} {:?}", initialised.read_only().get(), initialised.shared()), "{} {}");
}

#[test]
fn values_are_read_as_what_is_asked_for_or_refused() {
    let section = Section::new("all", "")
        .with("text", "word")
        .with("number", 300)
        .with("fraction", 1.5)
        .with("flag", true)
        .with("list", vec![1, 2])
        .with("address", "127.0.0.1:80");
    assert_eq!(section.get::<&str>("text").unwrap(), "word");
    assert_eq!(section.get::<u16>("number").unwrap(), 300);
    assert!(section.get::<u8>("number").is_err());
    assert_eq!(section.get::<f64>("number").unwrap(), 300.0);
    assert_eq!(section.get::<f64>("fraction").unwrap(), 1.5);
    assert!(section.get::<i64>("fraction").is_err() && section.get::<bool>("text").is_err());
    assert!(section.get::<bool>("flag").unwrap());
    assert_eq!(section.get::<Vec<u8>>("list").unwrap(), [1, 2]);
    assert!(section.get::<Vec<&str>>("list").is_err() && section.get::<Vec<u8>>("flag").is_err());
    assert_eq!(section.get_optional::<u8>("none").unwrap(), None);
    assert!(section.get_or("text", 5).is_err(), "a default hides no wrong value");
    assert_eq!(section.parse::<SocketAddr>("address").unwrap().port(), 80);
    let error = section.parse::<SocketAddr>("text").unwrap_err();
    assert!(error.to_string().contains("wanted a SocketAddr (invalid socket address"), "{error}");
    assert!(section.parse::<SocketAddr>("none").is_err());
    assert_eq!(section.get::<&Value>("flag").unwrap(), &Value::Flag(true));
    assert_eq!(section.keys().count(), 6);
    section.check_keys().unwrap();
    let section = section.with("another", 1);
    assert_eq!(section.check_keys().unwrap_err().key(), Some("another"));
}

#[test]
fn times_have_units() {
    let read = |value: Value| Duration::from_value(&value).ok();
    for (text, expected) in [
        ("250ms", Duration::from_millis(250)),
        ("1.5s", Duration::from_millis(1500)),
        (" 10 min ", Duration::from_secs(600)),
        ("2h", Duration::from_secs(7200)),
        ("1d", Duration::from_secs(86_400)),
    ] {
        assert_eq!(read(text.into()), Some(expected), "{text}");
    }
    assert_eq!(read(3.into()), Some(Duration::from_secs(3)));
    assert_eq!(read(0.5.into()), Some(Duration::from_millis(500)));
    for wrong in ["", "5", "ms", "5 parsecs", "-1s", "1e400s", "NaNs", "1s1s"] {
        assert_eq!(read(wrong.into()), None, "{wrong}");
    }
    assert_eq!((read((-1).into()), read(f64::NAN.into()), read(true.into())), (None, None, None));
}

#[cfg(feature = "toml")]
mod toml {
    use super::*;

    const TOML: &str = r#"
# What the server is made of.
[route.home]
path = "/"

[route.about]
path = "/about"
methods = ["GET", "HEAD"]
ttl = "10min"

[limit.requests]
value = 0x1_00

[[counter]]
name = "visits"
start = 40

[[counter]]
name = "errors"

[log]
first = "begin"
"#;

    #[test]
    fn a_configuration_from_toml_tells_which_objects_are_made() {
        check(&Configuration::from_toml("server.toml", TOML).unwrap());
    }

    #[test]
    fn toml_and_code_say_the_same() {
        let from_toml = Configuration::from_toml("server.toml", TOML).unwrap();
        let in_code = in_code();
        assert_eq!(from_toml.sections().len(), in_code.sections().len());
        for (one, other) in from_toml.sections().iter().zip(in_code.sections()) {
            assert_eq!((one.kind(), one.name()), (other.kind(), other.name()));
            assert!(one.keys().eq(other.keys()));
            for key in one.keys() {
                assert_eq!(one.get::<&Value>(key).unwrap(), other.get::<&Value>(key).unwrap());
            }
        }
    }

    fn refused(text: &str) -> String {
        match Configuration::from_toml("a.toml", text) {
            Ok(configuration) => error_of(&configuration).to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn errors_name_the_line() {
        let unknown = refused("[route.home]\npath = \"/\"\n\npth = 1\n");
        assert!(unknown.starts_with("a.toml:4: section [route.home], key 'pth': not known"));
        let wrong = refused("\n\n[limit.x]\nvalue = \"many\"");
        assert!(wrong.starts_with("a.toml:4: section [limit.x], key 'value': is \"many\" (text);"));
        let missing = refused("\n[limit.x]\n");
        assert_eq!(missing, "a.toml:2: section [limit.x], key 'value': missing: add it");
        let kind = refused("[route.home]\npath=\"/\"\n[rout.away]\n");
        assert!(kind.starts_with("a.toml:3: section [rout.away]: not known"), "{kind}");
        let twice = refused("[[counter]]\nname = \"a\"\n[[counter]]\nname = \"a\"\n");
        assert!(twice.starts_with("a.toml:3: section [counter.a]: there is one"), "{twice}");
    }

    #[test]
    fn what_is_no_toml_or_no_section_is_refused_with_its_line() {
        for (text, start) in [
            ("[route", "a.toml:1: "),
            ("\na = ", "a.toml:2: "),
            ("loose = 1", "a.toml:1, key 'loose': a value outside of all sections: put it below"),
            ("[a]\n[a]\n", "a.toml:2: "),
            ("[a.b]\nx = {y = 1}", "a.toml:2: section [a.b], key 'x': a table in a section"),
            ("[a.b.c]\nx = 1", "a.toml:1: section [a.b], key 'c': a table in a section"),
            ("[a]\nx = 99999999999999999999", "a.toml:2: section [a], key 'x': is 99999"),
            ("x = [1, {y = 2}]", "a.toml:1, key 'x': a value outside"),
            ("\u{0}", "a.toml:1: "),
        ] {
            let error = Configuration::from_toml("a.toml", text).map(drop).unwrap_err();
            assert!(error.to_string().starts_with(start), "{text:?}: {error}");
        }
        // Depth is limited by the parser, not by the stack.
        let deep = format!("[a]\nx = {}", "[".repeat(100_000));
        assert!(Configuration::from_toml("a.toml", &deep).is_err());
    }

    #[test]
    fn sections_without_keys_dates_and_mixed_tables_are_read() {
        let text = "[empty]\n[mixed]\nx = 1\n[mixed.inner]\ny = 1979-05-27\n[[list]]\n[[list]]\nname = \"\"\n";
        let configuration = Configuration::from_toml("a.toml", text).unwrap_err();
        assert!(
            matches!(configuration.problem(), ConfigurationProblem::Duplicate),
            "two of [list]"
        );
        let text = text.replace("name = \"\"", "name = \"second\"");
        let configuration = Configuration::from_toml("a.toml", &text).unwrap();
        let names: Vec<_> = configuration.sections().iter().map(|s| (s.kind(), s.name())).collect();
        let expected =
            [("empty", ""), ("mixed", ""), ("mixed", "inner"), ("list", ""), ("list", "second")];
        assert_eq!(names, expected);
        let inner = configuration.section("mixed", "inner").unwrap();
        assert_eq!(inner.get::<&str>("y").unwrap(), "1979-05-27");
    }

    #[test]
    fn a_file_that_can_not_be_read_is_named() {
        let error = Configuration::read("/nowhere/at/all.toml").unwrap_err();
        assert!(matches!(error.problem(), ConfigurationProblem::Unreadable(_)));
        assert!(error.to_string().starts_with("/nowhere/at/all.toml: can't be read: No such file"));
        let path = std::env::temp_dir().join(format!("allotment-{}.toml", std::process::id()));
        std::fs::write(&path, TOML).unwrap();
        assert_eq!(Configuration::read(&path).unwrap().sections().len(), 6);
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert!(Configuration::read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}

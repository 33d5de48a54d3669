//! What outlives its request: ordinary code, without a type of Allotment.

use super::calendar::HOUR;
use bench::workloads::random::Random;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The mean life of a session, in minutes.
const SESSION: f64 = 150.0;
/// The limits of the life of a session, in minutes.
const SESSION_LIMITS: (f64, f64) = (10.0, 720.0);
/// The minutes for which a page is cached.
const PAGE: u32 = HOUR;
/// The most words that are interned.
const WORDS: usize = 20_000;

/// What a user's session holds.
#[derive(Debug)]
pub struct Session {
    /// The user's name.
    pub user: String,
    /// What the user has chosen.
    pub basket: Vec<String>,
    /// What the user proves the session with.
    pub token: Box<[u8]>,
}

/// What ends at a minute that is known when it begins.
#[derive(Debug)]
enum Lasting {
    Session(Session),
    Export(Vec<u8>),
}

impl Lasting {
    /// Whether its content is what was put there.
    fn is_intact(&self) -> bool {
        match self {
            Self::Session(session) => {
                let is_of_user = |item: &String| item.ends_with(&session.user);
                session.basket.iter().all(is_of_user)
                    && session.token.first() == session.token.last()
            }
            Self::Export(bytes) => bytes.first() == bytes.last(),
        }
    }
}

#[derive(Debug)]
struct Page {
    minute: u32,
    bytes: Box<[u8]>,
}

/// Replies that are kept for an hour. A deploy replaces all of it.
#[derive(Debug, Default)]
struct PageCache {
    pages: HashMap<u64, Page>,
    /// The numbers of the pages, oldest first.
    numbers: VecDeque<u64>,
}

/// What outlives its request, until it ends.
#[derive(Debug)]
pub struct Escapees {
    /// What ends at each minute.
    endings: Mutex<Vec<Vec<Lasting>>>,
    pages: Mutex<Arc<Mutex<PageCache>>>,
    /// Words that stay for ever.
    words: Mutex<HashMap<String, u32>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No call leaves the tables half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Escapees {
    /// Makes an empty set for this number of minutes.
    pub fn new(minutes: u32) -> Self {
        Self {
            // The last one is for what ends later.
            endings: Mutex::new((0..=minutes).map(|_| Vec::new()).collect()),
            pages: Mutex::default(),
            words: Mutex::default(),
        }
    }

    /// Keeps something until a minute. What ends after the last minute ends with this value.
    fn keep(&self, lasting: Lasting, until: u32) {
        let mut endings = lock(&self.endings);
        let last = endings.len() - 1;
        endings[last.min(until as usize)].push(lasting);
    }

    /// Begins a session, which ends after hours.
    pub fn begin_session(&self, id: u64, minute: u32, random: &mut Random) {
        let user = format!("user {id}");
        let items = random.below(40);
        let item = |number| {
            let name = "x".repeat(20 + random.below(100) as usize);
            format!("item {number}, {name}, of {user}")
        };
        let basket = (0..items).map(item).collect();
        let token = vec![id as u8; 256 + random.below(1800) as usize].into_boxed_slice();
        let part = (f64::from(random.below(1 << 30)) + 1.0) / f64::from(1 << 30);
        let life = (-part.ln() * SESSION).clamp(SESSION_LIMITS.0, SESSION_LIMITS.1);
        self.keep(Lasting::Session(Session { user, basket, token }), minute + life as u32);
    }

    /// Makes an export of 64 KiB to 2 MiB, which is kept for up to 90 minutes.
    pub fn make_export(&self, id: u64, minute: u32, random: &mut Random) {
        let size = ((64 << 10) << random.below(5)) + random.below(64 << 10);
        let mut bytes = vec![0; size as usize];
        bytes.fill(id as u8);
        self.keep(Lasting::Export(bytes), minute + 20 + random.below(70));
    }

    /// Caches a reply.
    pub fn cache_page(&self, number: u64, minute: u32, reply: &[u8]) {
        let cache = lock(&self.pages).clone();
        let page = Page { minute, bytes: reply.into() };
        let mut cache = lock(&cache);
        let replaced = cache.pages.insert(number, page);
        if replaced.is_none() {
            cache.numbers.push_back(number);
        }
        drop(cache);
        drop(replaced);
    }

    /// Interns a word.
    pub fn intern(&self, word: &str) -> u32 {
        let mut words = lock(&self.words);
        if let Some(number) = words.get(word) {
            return *number;
        }
        let number = words.len() as u32;
        if words.len() < WORDS {
            words.insert(word.to_owned(), number);
        }
        number
    }

    /// Replaces the cache of pages by an empty one.
    pub fn deploy(&self) {
        let old = core::mem::take(&mut *lock(&self.pages));
        drop(old);
    }

    /// Ends what ends at this minute. Returns whether all of it was as it was made.
    pub fn end(&self, minute: u32) -> bool {
        let ended = core::mem::take(&mut lock(&self.endings)[minute as usize]);
        let mut is_intact = ended.iter().all(Lasting::is_intact);
        drop(ended);
        let cache = lock(&self.pages).clone();
        let mut cache = lock(&cache);
        while let Some(number) = cache.numbers.front().copied() {
            let Some(page) = cache.pages.get(&number) else { return false };
            if page.minute + PAGE > minute {
                break;
            }
            is_intact &= page.bytes.first() == Some(&b'{') && page.bytes.last() == Some(&b'}');
            cache.pages.remove(&number);
            cache.numbers.pop_front();
        }
        is_intact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_ends_at_its_minute() {
        let escapees = Escapees::new(2000);
        let mut random = Random::stream(3);
        let lasting =
            |escapees: &Escapees| lock(&escapees.endings).iter().map(Vec::len).sum::<usize>();
        let pages = |escapees: &Escapees| lock(&lock(&escapees.pages)).pages.len();
        for id in 0..100 {
            escapees.begin_session(id, 7, &mut random);
            escapees.make_export(id, 7, &mut random);
            escapees.cache_page(id % 50, 7, b"{}");
        }
        assert_eq!((lasting(&escapees), pages(&escapees)), (200, 50));
        assert!((0..=16).all(|minute| escapees.end(minute)));
        assert_eq!((lasting(&escapees), pages(&escapees)), (200, 50));
        assert!((17..7 + PAGE).all(|minute| escapees.end(minute)));
        assert_eq!(pages(&escapees), 50);
        assert!((7 + PAGE..800).all(|minute| escapees.end(minute)));
        assert_eq!((lasting(&escapees), pages(&escapees)), (0, 0));
        escapees.cache_page(1, 900, b"{}");
        escapees.deploy();
        assert_eq!(pages(&escapees), 0);
        escapees.begin_session(1, 1999, &mut random);
        assert_eq!(lasting(&escapees), 1);
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let escapees = Escapees::new(10);
        escapees.keep(Lasting::Export(vec![1, 2]), 3);
        assert!(!escapees.end(3));
        let late = Escapees::new(100);
        late.cache_page(1, 0, b"{?");
        assert!(!late.end(PAGE));
    }

    #[test]
    fn a_word_has_one_number() {
        let escapees = Escapees::new(1);
        let numbers = ["a", "b", "a"].map(|word| escapees.intern(word));
        assert_eq!(numbers, [0, 1, 0]);
    }
}

//! The sessions of users: what the agent remembers of each between visits.
//!
//! A [`SessionList`] is a shared object: its methods run under its lock. It knows nothing of HTTP
//! except the text of the cookie.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The name of the cookie.
pub const COOKIE: &str = "allotment_session";

/// The name of a session: 128 random bits, which cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey(u128);

impl SessionKey {
    /// Returns a new key, or `None` if the system has no random bytes.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        Some(Self(u128::from_ne_bytes(bytes)))
    }

    /// Returns the key in a `Cookie` field, if it contains one of the right form.
    pub fn of_cookies(cookies: &str) -> Option<Self> {
        cookies.split(';').find_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == COOKIE).then(|| Self::parse(value)).flatten()
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let plain =
            text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }

    /// Returns the value of the `Set-Cookie` field.
    pub fn set_cookie(self, expiry: Duration) -> String {
        let seconds = expiry.as_secs();
        format!("{COOKIE}={self}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax")
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for SessionKey {
    /// Hides the key, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// The colours of the page that a user has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// As the browser is configured.
    #[default]
    Auto,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Theme {
    /// Returns the name in queries and replies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Returns the theme of this name.
    pub fn from_name(word: &str) -> Option<Self> {
        [Self::Auto, Self::Light, Self::Dark].into_iter().find(|theme| theme.as_str() == word)
    }
}

/// What the agent remembers of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Requests in this session, including the current one.
    pub visits: u64,
    /// When the session began.
    pub since: Instant,
    /// When the last request came.
    pub last_request: Instant,
    /// The colours that the user chose.
    pub theme: Theme,
}

/// How many sessions the list may hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Limit on sessions. A further one replaces the session that was idle longest.
    pub max: usize,
    /// How long a session is kept after its last request.
    pub expiry: Duration,
}

/// The sessions, by key.
#[derive(Debug, Default)]
pub struct SessionList {
    sessions: HashMap<SessionKey, Session>,
    begun: u64,
    dropped: u64,
}

impl SessionList {
    /// Records a request in the session of this key. Returns `None` if there is no such session, or
    /// it has expired.
    pub fn visit(
        &mut self,
        key: SessionKey,
        now: Instant,
        limits: SessionLimits,
    ) -> Option<&mut Session> {
        let session = self.sessions.get(&key)?;
        if now.saturating_duration_since(session.last_request) >= limits.expiry {
            self.sessions.remove(&key);
            return None;
        }
        let session = self.sessions.get_mut(&key)?;
        session.visits += 1;
        session.last_request = now;
        Some(session)
    }

    /// Begins a session. If the list is full, removes expired sessions first, and then the session
    /// that was idle longest.
    pub fn begin(&mut self, key: SessionKey, now: Instant, limits: SessionLimits) -> &mut Session {
        let max = limits.max.max(1);
        if self.sessions.len() >= max {
            self.expire(now, limits.expiry);
        }
        while self.sessions.len() >= max {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.last_request);
            let Some((&oldest, _)) = oldest else { break };
            self.sessions.remove(&oldest);
            self.dropped += 1;
        }
        self.begun += 1;
        let session = Session { visits: 1, since: now, last_request: now, theme: Theme::default() };
        self.sessions.entry(key).or_insert(session)
    }

    /// Stores the user's choice, if the session exists.
    pub fn set_theme(&mut self, key: SessionKey, theme: Theme) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.theme = theme;
        }
    }

    /// Removes expired sessions.
    pub fn expire(&mut self, now: Instant, expiry: Duration) {
        self.sessions
            .retain(|_, session| now.saturating_duration_since(session.last_request) < expiry);
    }

    /// Returns the number of sessions, including expired ones that have not been removed yet.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns how many sessions have begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns how many sessions were replaced before they expired.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SessionLimits = SessionLimits { max: 3, expiry: Duration::from_secs(60) };

    #[test]
    fn a_returning_user_finds_his_session() {
        let mut list = SessionList::default();
        let (key, start) = (SessionKey::random().unwrap(), Instant::now());
        list.begin(key, start, LIMITS).theme = Theme::Dark;
        let cookie = key.set_cookie(LIMITS.expiry);
        let sent = format!("other=1; {}", cookie.split(';').next().unwrap());
        let found = SessionKey::of_cookies(&sent).unwrap();
        let session = list.visit(found, start + Duration::from_secs(59), LIMITS).unwrap();
        assert_eq!((session.visits, session.theme, session.since), (2, Theme::Dark, start));
    }

    #[test]
    fn a_session_expires_after_its_last_request() {
        let mut list = SessionList::default();
        let (key, start) = (SessionKey::random().unwrap(), Instant::now());
        list.begin(key, start, LIMITS);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(list.visit(key, at(59), LIMITS).is_some());
        assert!(list.visit(key, at(118), LIMITS).is_some());
        assert!(list.visit(key, at(178), LIMITS).is_none());
        assert!(list.is_empty());
    }

    #[test]
    fn the_list_never_holds_more_than_its_limit() {
        let mut list = SessionList::default();
        let start = Instant::now();
        let keys: Vec<_> = (0..5).map(|_| SessionKey::random().unwrap()).collect();
        for (second, key) in keys.iter().enumerate() {
            list.begin(*key, start + Duration::from_secs(second as u64), LIMITS);
            assert!(list.len() <= 3);
        }
        let now = start + Duration::from_secs(10);
        assert!(list.visit(keys[1], now, LIMITS).is_none());
        assert!(list.visit(keys[2], now, LIMITS).is_some());
        assert_eq!((list.begun(), list.dropped()), (5, 2));
        // Expired sessions are removed first.
        list.begin(keys[0], now + Duration::from_secs(65), LIMITS);
        assert_eq!((list.len(), list.dropped()), (1, 2));
    }

    #[test]
    fn cookies_that_are_not_ours_are_no_key() {
        let good = "0123456789abcdef0123456789abcdef";
        assert!(SessionKey::of_cookies(&format!("{COOKIE}={good}")).is_some());
        for bad in [
            String::new(),
            "=".to_owned(),
            COOKIE.to_owned(),
            format!("{COOKIE}="),
            format!("{COOKIE}={}", &good[1..]),
            format!("{COOKIE}=+{}", &good[1..]),
            format!("{COOKIE}={}", good.to_uppercase()),
            format!("x{COOKIE}={good}"),
        ] {
            assert_eq!(SessionKey::of_cookies(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_is_not_shown_where_things_are_logged() {
        let key = SessionKey::random().unwrap();
        assert!(!format!("{key:?}").contains(&key.to_string()));
    }
}

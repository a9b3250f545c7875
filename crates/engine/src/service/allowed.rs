//! What an operator allows.

use alloc::string::String;

use super::ServiceClass;

/// The bounds of what a sender may ask of the network: by default, all that a user may do by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    bounds: Bounds,
    why: String,
}

/// The bounds of [`Allowed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// No class above normal.
    pub no_priority: bool,
    /// Not even the class that yields, whose mark some networks drop.
    pub no_background: bool,
    /// Rate with priority.
    pub priority_bytes_per_s: Option<u64>,
    /// Time with priority in a day.
    pub priority_us: Option<u64>,
    /// Share of the path's rate, in parts per thousand.
    pub priority_permille: Option<u16>,
}

impl Bounds {
    /// Narrows one by the other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Self {
            no_priority: self.no_priority || other.no_priority,
            no_background: self.no_background || other.no_background,
            priority_bytes_per_s: least(self.priority_bytes_per_s, other.priority_bytes_per_s),
            priority_us: least(self.priority_us, other.priority_us),
            priority_permille: least(self.priority_permille, other.priority_permille),
        }
    }
}

impl Allowed {
    /// Makes bounds with their origin.
    #[must_use]
    pub fn new(bounds: Bounds, why: String) -> Self {
        Self { bounds, why }
    }

    /// The class instead of this one.
    #[must_use]
    pub fn class(&self, wanted: ServiceClass) -> ServiceClass {
        match wanted {
            ServiceClass::Priority if self.bounds.no_priority => ServiceClass::Normal,
            ServiceClass::Background if self.bounds.no_background => ServiceClass::Normal,
            wanted => wanted,
        }
    }

    /// Whether priority is allowed.
    #[must_use]
    pub fn priority(&self) -> bool {
        !self.bounds.no_priority
    }

    /// The time with priority in a day.
    #[must_use]
    pub fn priority_us(&self) -> Option<u64> {
        self.bounds.priority_us
    }

    /// The rate with priority at this capacity; 0: unknown.
    #[must_use]
    pub fn priority_bytes_per_s(&self, capacity_bytes_per_s: u64) -> Option<u64> {
        let part = |permille: u16| u128::from(capacity_bytes_per_s) * u128::from(permille) / 1000;
        let share = self.bounds.priority_permille.filter(|_| capacity_bytes_per_s > 0);
        let share = share.map(|permille| u64::try_from(part(permille)).unwrap_or(u64::MAX).max(1));
        match (share, self.bounds.priority_bytes_per_s) {
            (Some(share), Some(rate)) => Some(share.min(rate)),
            (share, rate) => share.or(rate),
        }
    }

    /// The origin of the bounds.
    #[must_use]
    pub fn why(&self) -> &str {
        if self.why.is_empty() { "no policy says so" } else { &self.why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_policies_together_are_never_wider_than_either() {
        let site = Bounds { priority_bytes_per_s: Some(100), priority_us: Some(5), ..Bounds::default() };
        let user = Bounds { no_background: true, priority_bytes_per_s: Some(200), ..Bounds::default() };
        let both = site.and(user);
        assert_eq!((both.priority_bytes_per_s, both.priority_us, both.no_background), (Some(100), Some(5), true));
        assert_eq!(both, user.and(site));
        assert_eq!(site.and(Bounds::default()), site, "who says nothing narrows nothing");
    }

    #[test]
    fn what_is_not_allowed_goes_on_as_normal_and_a_share_follows_the_path() {
        let bounds = Bounds { no_priority: true, priority_permille: Some(500), ..Bounds::default() };
        let allowed = Allowed::new(bounds, String::from("/etc/haul/policy.toml"));
        assert_eq!(allowed.class(ServiceClass::Priority), ServiceClass::Normal);
        assert_eq!(allowed.class(ServiceClass::Background), ServiceClass::Background);
        assert_eq!(allowed.priority_bytes_per_s(1_000), Some(500));
        assert_eq!(allowed.priority_bytes_per_s(0), None, "nothing is known of the path yet");
    }
}

//! The faster stager, the driver or p2pshim: the doctor measures both, verdicts keep the rates, and `P2PSHIM_STAGING=auto` obeys them.

use std::fmt::Write as _;

/// Copies of about the same size: the least of them in bytes, and the word for them in files, in MiB.
const CLASSES: [(u64, &str); Stagers::CLASSES] =
    [(8 << 20, "8-16"), (16 << 20, "16-64"), (64 << 20, "64-256"), (256 << 20, "256-")];
/// How many links copy at once, in files.
const LINKS: [&str; 2] = ["one-link", "all-links"];

/// GB/s a link of copies through the host, that the driver stages and that p2pshim does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// GB/s that the driver makes.
    pub driver: f64,
    /// GB/s that p2pshim makes.
    pub shim: f64,
}

impl Rates {
    /// Whether p2pshim is as fast. Its call returns sooner.
    fn are_ours(self) -> bool {
        self.shim >= self.driver
    }
}

/// The speed of either, by the size of copies and whether one link or all are busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stagers([[Option<Rates>; LINKS.len()]; Self::CLASSES]);

impl Stagers {
    /// How many sizes there are.
    pub const CLASSES: usize = 4;

    /// The sizes that are measured, in bytes: the least of each class.
    pub fn sizes() -> [u64; Self::CLASSES] {
        CLASSES.map(|(least, _)| least)
    }

    /// The classes, in MiB.
    pub fn words() -> [&'static str; Self::CLASSES] {
        CLASSES.map(|(_, word)| word)
    }

    /// The speeds of each class.
    pub fn rates(&self, are_all_busy: bool) -> [Option<Rates>; Self::CLASSES] {
        self.0.map(|of_class| of_class.get(usize::from(are_all_busy)).copied().flatten())
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.as_flattened().iter().all(Option::is_none)
    }

    /// Notes how fast copies of a class are, by its place in [`Stagers::sizes`].
    pub fn set(&mut self, class: usize, are_all_busy: bool, rates: Rates) {
        let place = self.0.get_mut(class).and_then(|of_class| of_class.get_mut(usize::from(are_all_busy)));
        place.into_iter().for_each(|place| *place = Some(rates));
    }

    /// Whether p2pshim is to stage a copy of so many bytes. Where nothing was measured the driver does, as without p2pshim.
    pub fn are_ours(&self, bytes: u64, are_several_busy: bool) -> bool {
        let class = CLASSES.iter().zip(self.rates(are_several_busy)).rfind(|((least, _), _)| bytes >= *least);
        class.and_then(|(_, rates)| rates).is_some_and(Rates::are_ours)
    }

    /// The sizes that p2pshim is to stage, for people; empty if it is to stage none.
    pub fn ours(&self) -> String {
        let of = |place: usize| {
            let rates = self.rates(place == 1);
            let ours = CLASSES.iter().zip(rates).filter(|(_, rates)| rates.is_some_and(Rates::are_ours));
            ours.map(|((_, class), _)| *class).collect::<Vec<_>>().join(", ")
        };
        let said = ["on one busy link", "on several"].into_iter().enumerate().filter_map(|(place, links)| {
            Some(of(place)).filter(|classes| !classes.is_empty()).map(|classes| format!("{classes} MiB {links}"))
        });
        said.collect::<Vec<_>>().join(", ")
    }

    /// Adds what was measured later.
    pub fn update(&mut self, later: &Self) {
        for (known, later) in self.0.as_flattened_mut().iter_mut().zip(later.0.as_flattened()) {
            *known = later.or(*known);
        }
    }

    /// A line for each that was measured.
    pub fn write(&self) -> String {
        let mut text = String::new();
        for ((_, class), of_class) in CLASSES.iter().zip(&self.0) {
            for (links, rates) in LINKS.iter().zip(of_class) {
                if let Some(Rates { driver, shim }) = rates {
                    let _ = writeln!(text, "{} {class} {links} driver {driver:.2} p2pshim {shim:.2}", Self::WORD);
                }
            }
        }
        text
    }

    /// The first word of each line.
    pub const WORD: &str = "staging";

    /// Adds what follows that word; none if it is not one of ours.
    pub fn read(&mut self, line: &str) -> Option<()> {
        let [class, links, "driver", driver, "p2pshim", shim] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let class = CLASSES.iter().position(|(_, word)| *word == class)?;
        let links = LINKS.iter().position(|word| *word == links)?;
        self.set(class, links == 1, Rates { driver: rate(driver)?, shim: rate(shim)? });
        Some(())
    }
}

/// GB/s as a file has them; none that no link can have.
pub(crate) fn rate(text: &str) -> Option<f64> {
    const FASTEST: f64 = 100_000.0;
    text.parse().ok().filter(|rate| (0.0..=FASTEST).contains(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faster_of_the_two_stages_by_size_and_links() {
        let mut stagers = Stagers::default();
        assert!(stagers.is_empty() && !stagers.are_ours(1 << 30, false), "the driver's");
        stagers.set(1, false, Rates { driver: 38.0, shim: 38.0 });
        stagers.set(1, true, Rates { driver: 38.0, shim: 37.99 });
        stagers.set(3, true, Rates { driver: 20.0, shim: 40.0 });
        let ours = |mib: u64| [false, true].map(|several| stagers.are_ours(mib << 20, several));
        assert_eq!(
            [8, 15, 16, 63, 64, 255, 256, 4096].map(ours),
            [
                [false; 2],
                [false; 2],
                [true, false],
                [true, false],
                [false; 2],
                [false; 2],
                [false, true],
                [false, true]
            ]
        );
        assert!(!stagers.are_ours((16 << 20) - 1, false));
    }

    #[test]
    fn read_takes_what_was_written_and_nothing_else() {
        let mut stagers = Stagers::default();
        stagers.set(0, false, Rates { driver: 37.5, shim: 51.72 });
        stagers.set(3, true, Rates { driver: 12.9, shim: 40.3 });
        let text = stagers.write();
        assert_eq!(
            text,
            "staging 8-16 one-link driver 37.50 p2pshim 51.72\nstaging 256- all-links driver 12.90 p2pshim 40.30\n"
        );
        let mut read = Stagers::default();
        assert!(text.lines().all(|line| read.read(line.strip_prefix("staging ").unwrap()).is_some()));
        assert_eq!(read, stagers);
        for other in ["8-16 one-link", "8-16 one-link driver NaN p2pshim 1", "1-8 one-link driver 1 p2pshim 1", ""] {
            assert_eq!(read.read(other), None, "{other}");
        }
    }
}

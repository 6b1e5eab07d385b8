//! The machine's devices, the pairs of them that have a path, and the pairs that the user asked for.

use std::str::FromStr;

use super::lines::{Attributes, Known, Line};
use crate::numbers;

/// The user's words for one or two pairs of ordinals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pairs(Vec<[usize; 2]>);

impl FromStr for Pairs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "merge" {
            return Err("files of many machines are compared by `p2pshim fleet`".to_owned());
        }
        let (ends, both_ways) = numbers::pair(text)?;
        let [from, to] = ends.map(|end| end as usize);
        if from == to {
            return Err(format!("{text:?}: a GPU has no path to itself"));
        }
        Ok(Self(if both_ways { vec![[from, to], [to, from]] } else { vec![[from, to]] }))
    }
}

/// A device, as the driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) bus_id: String,
    pub(super) uuid: String,
    pub(super) name: String,
}

/// The facts that the first worker tells.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) driver: Option<i32>,
    /// Versions of runtimes, and the names of their libraries.
    pub(super) runtimes: Vec<(i32, String)>,
    pub(super) devices: Vec<Device>,
    /// Pairs with a path, and what the driver says of them.
    pub(super) paths: Vec<([usize; 2], Option<Attributes>)>,
    /// NVML's facts about the devices.
    pub(super) known: Vec<Known>,
    /// Pairs that NVLink joins.
    pub(super) nvlinks: Vec<[usize; 2]>,
    /// NVML's statuses of pairs: reads, writes, atomic operations, PCI.
    pub(super) statuses: Vec<([usize; 2], [Option<i32>; 4])>,
    /// Devices that are not checked before a program starts, and why.
    pub(super) unfit: Vec<(usize, String)>,
    /// Whether confidential computing is on.
    pub(super) is_confidential: Option<bool>,
}

impl Inventory {
    pub(super) fn new(lines: Vec<Line>) -> Self {
        let mut inventory = Self::default();
        for line in lines {
            match line {
                Line::Driver(version) => inventory.driver = Some(version),
                Line::Runtime(version, name) => inventory.runtimes.push((version, name)),
                Line::Device { bus_id, uuid, name, .. } => {
                    inventory.devices.push(Device { bus_id, uuid, name });
                    inventory.known.push(Known::default());
                }
                Line::Path(from, to) => inventory.paths.push(([from, to], None)),
                Line::Attributes(from, to, attributes) => {
                    let path = inventory.paths.iter_mut().find(|(pair, _)| *pair == [from, to]);
                    path.into_iter().for_each(|(_, known)| *known = Some(attributes));
                }
                Line::Known(ordinal, known) => {
                    inventory.known.get_mut(ordinal).into_iter().for_each(|place| *place = (*known).clone());
                }
                Line::NvLink(from, to) => inventory.nvlinks.push([from, to]),
                Line::Statuses(from, to, statuses) => inventory.statuses.push(([from, to], statuses)),
                Line::Unfit(ordinal, why) => inventory.unfit.push((ordinal, why)),
                Line::Confidential(is_on) => inventory.is_confidential = Some(is_on),
                Line::Pair(..)
                | Line::Begun(_)
                | Line::Found(..)
                | Line::Measured(..)
                | Line::AtOnce(_)
                | Line::Soaks => {}
                Line::Stagers { .. } | Line::Done(_) | Line::Verdict(_) | Line::Partner(_) => {}
            }
        }
        inventory
    }

    /// Whether a pair has a path.
    pub(super) fn has_path(&self, pair: [usize; 2]) -> bool {
        self.paths.iter().any(|(known, _)| *known == pair)
    }

    /// The pairs that are asked for, each once; all if none is.
    ///
    /// # Errors
    /// A sentence for the user if one of them does not exist.
    pub(super) fn wanted(&self, asked: &[Pairs]) -> Result<Vec<[usize; 2]>, String> {
        let count = self.devices.len();
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        if asked.is_empty() {
            let all = (0..count).flat_map(|from| (0..count).map(move |to| [from, to]));
            pairs.extend(all.filter(|[from, to]| from != to));
        }
        for &pair in asked.iter().flat_map(|Pairs(pairs)| pairs) {
            if let Some(missing) = pair.iter().find(|&&ordinal| ordinal >= count) {
                return Err(format!("there is no GPU {missing}: CUDA reports {count}, counted from 0"));
            }
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An inventory of so many devices, of which the first reaches the second.
    fn inventory(count: usize) -> Inventory {
        let device = |ordinal: usize| Line::Device {
            ordinal,
            bus_id: String::new(),
            uuid: format!("GPU-{ordinal}"),
            name: String::new(),
        };
        Inventory::new((0..count).map(device).chain([Line::Driver(13000), Line::Path(0, 1)]).collect())
    }

    #[test]
    fn pairs_one_way_and_both_ways() {
        assert_eq!("0>1".parse(), Ok(Pairs(vec![[0, 1]])));
        assert_eq!("3-2".parse(), Ok(Pairs(vec![[3, 2], [2, 3]])));
        for wrong in ["", "0", "0>", "-1", "0:1", "a>b", "1>1", "0>1>2"] {
            assert!(wrong.parse::<Pairs>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn wanted_all_or_those_asked_for_each_once() {
        assert_eq!(inventory(2).wanted(&[]), Ok(vec![[0, 1], [1, 0]]));
        assert_eq!(inventory(1).wanted(&[]), Ok(vec![]));
        let asked = ["2>0", "0-2"].map(|text| text.parse().unwrap());
        assert_eq!(inventory(3).wanted(&asked), Ok(vec![[2, 0], [0, 2]]));
        assert!(inventory(2).wanted(&asked).unwrap_err().contains("no GPU 2"));
    }

    #[test]
    fn inventory_attributes_are_those_of_their_pair() {
        let attributes = Attributes { rank: 1, atomics: true, arrays: false };
        let lines = vec![
            Line::Path(0, 1),
            Line::Path(1, 0),
            Line::Attributes(1, 0, attributes),
            Line::Known(7, Box::default()),
        ];
        let inventory = Inventory::new(lines);
        assert_eq!(inventory.paths, [([0, 1], None), ([1, 0], Some(attributes))]);
        assert!(inventory.has_path([0, 1]) && !inventory.has_path([0, 2]) && inventory.known.is_empty());
    }
}

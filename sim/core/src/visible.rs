//! Which devices a program sees, and in which order: lists such as `CUDA_VISIBLE_DEVICES` number and name them.

/// The effect on the list of a device that is named again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// Nothing is visible: `CUDA_VISIBLE_DEVICES`.
    HidesAll,
    /// The list ends before it: `ROCR_VISIBLE_DEVICES`.
    Ends,
    /// It is passed over: `HIP_VISIBLE_DEVICES`.
    IsSkipped,
}

/// The devices that a list shows, of so many. The list ends at the first item that is none of them. `is_named` says whether a device may
/// be called so; a name that fits several is no name.
pub fn visible(list: &str, devices: usize, repeated: Repeated, is_named: impl Fn(usize, &str) -> bool) -> Vec<usize> {
    let device = |item: &str| match item.parse() {
        Ok(number) => Some(number).filter(|number| *number < devices),
        Err(_) => {
            let mut named = (0..devices).filter(|device| is_named(*device, item));
            named.next().filter(|_| named.next().is_none())
        }
    };
    let mut seen = Vec::new();
    for device in list.split(',').map_while(|item| device(item.trim())) {
        match (seen.contains(&device), repeated) {
            (false, _) => seen.push(device),
            (true, Repeated::HidesAll) => return Vec::new(),
            (true, Repeated::Ends) => break,
            (true, Repeated::IsSkipped) => {}
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &str, repeated: Repeated) -> Vec<usize> {
        let names = ["GPU-ab00", "GPU-ab01", "GPU-cd02"];
        visible(list, 3, repeated, |device, item| item.starts_with("GPU-") && names[device].starts_with(item))
    }

    #[test]
    fn visible_numbers_and_names_in_the_order_of_the_list() {
        for (list, devices) in [
            ("2,0", vec![2, 0]),
            ("GPU-ab01, GPU-c,0", vec![1, 2, 0]),
            ("", vec![]),
            ("0,-1,2", vec![0]),
            ("0,3,2", vec![0]),
            ("1,GPU-ab,2", vec![1]),
            ("1,MIG-ab01,2", vec![1]),
            ("1,two", vec![1]),
        ] {
            assert_eq!(shown(list, Repeated::HidesAll), devices, "{list}");
        }
    }

    #[test]
    fn visible_device_that_is_named_again() {
        assert_eq!(shown("0,GPU-ab00,2", Repeated::HidesAll), []);
        assert_eq!(shown("0,GPU-ab00,2", Repeated::Ends), [0]);
        assert_eq!(shown("0,GPU-ab00,2", Repeated::IsSkipped), [0, 2]);
    }
}

//! The parameters of a kernel that point to constants, as its mangled name tells them (Itanium C++ ABI, "Mangling").
//!
//! Plain functions only, also those in namespaces: names with templates, and with types that are no plain ones, tell nothing here.

/// Whether each parameter points to constants; none if the name does not tell.
pub(crate) fn constants(name: &str) -> Option<Vec<bool>> {
    let mut name = Name { rest: name.strip_prefix("_Z")?.as_bytes(), known: Vec::new() };
    name.skip(b'L');
    if name.skip(b'N') {
        name.nested()?;
        // The function itself cannot be named again.
        name.known.pop();
    } else {
        name.source_name()?;
    }
    let mut parameters = Vec::new();
    while !name.rest.is_empty() {
        parameters.push(name.parameter()?);
    }
    Some(parameters.into_iter().map(|parameter| parameter.points_to_constant).collect())
}

#[derive(Clone, Copy, Default)]
struct Type {
    is_constant: bool,
    points_to_constant: bool,
}

struct Name<'a> {
    rest: &'a [u8],
    /// Types and namespaces that the rest may name by their number.
    known: Vec<Type>,
}

impl Name<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, byte: u8) -> bool {
        let is_there = self.rest.first() == Some(&byte);
        if is_there {
            self.next();
        }
        is_there
    }

    /// A name with its length before it; no template.
    fn source_name(&mut self) -> Option<()> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (length, rest) = self.rest.split_at_checked(digits)?;
        let length: usize = str::from_utf8(length).ok()?.parse().ok()?;
        self.rest = rest.get(length..)?;
        (self.rest.first() != Some(&b'I')).then_some(())
    }

    /// The names up to the `E`: each can be named again.
    fn nested(&mut self) -> Option<()> {
        while !self.skip(b'E') {
            if self.rest.first() == Some(&b'S') {
                self.known_type()?;
                continue;
            }
            self.source_name()?;
            self.known.push(Type::default());
        }
        Some(())
    }

    fn parameter(&mut self) -> Option<Type> {
        const DEEPEST: usize = 16;
        self.type_within(DEEPEST)
    }

    fn type_within(&mut self, depth: usize) -> Option<Type> {
        let within = depth.checked_sub(1)?;
        let made = match *self.rest.first()? {
            b'P' => {
                self.next();
                let to = self.type_within(within)?;
                Type { is_constant: false, points_to_constant: to.is_constant }
            }
            b'r' | b'V' | b'K' => {
                // In this order, and all of them make one type.
                let are = [b'r', b'V', b'K'].map(|byte| self.skip(byte));
                Type { is_constant: are[2], ..self.type_within(within)? }
            }
            b'S' => return self.known_type(),
            b'0'..=b'9' => {
                self.source_name()?;
                Type::default()
            }
            b'N' => {
                self.next();
                return self.nested().map(|()| Type::default());
            }
            b'a'..=b'z' => return self.next().filter(|byte| !b"kpqru".contains(byte)).map(|_| Type::default()),
            _ => return None,
        };
        self.known.push(made);
        Some(made)
    }

    /// `S_`, `S0_`, `S1_`: the first type, the second, and so on.
    fn known_type(&mut self) -> Option<Type> {
        self.next();
        let end = self.rest.iter().position(|&byte| byte == b'_')?;
        let (number, rest) = self.rest.split_at_checked(end)?;
        let number = match str::from_utf8(number).ok()? {
            "" => 0,
            digits if digits.bytes().all(|byte| !byte.is_ascii_lowercase()) => {
                usize::from_str_radix(digits, 36).ok()?.checked_add(1)?
            }
            _ => return None,
        };
        self.rest = rest.get(1..)?;
        self.known.get(number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::constants;

    #[test]
    fn constants_are_those_that_a_plain_name_tells() {
        // As g++ 14 names them.
        for (name, expected) in [
            ("_Z3addPKfS0_Pf", &[true, true, false][..]), // (float const*, float const*, float*)
            ("_Z3addPfS_PKfS1_", &[false, false, true, true]), // (float*, float*, float const*, float const*)
            ("_ZL3addPKfi", &[true, false]),              // static, (float const*, int)
            ("_ZN2ns3addEPKfi", &[true, false]),          // ns::add(float const*, int)
            ("_ZN2ns3addEPKNS_1TEPS0_", &[true, false]),  // ns::add(ns::T const*, ns::T*)
            ("_ZN2ns3addEPNS_1TEPKS0_S3_PKfS5_", &[false, true, true, true, true]),
            ("_Z3addPK1TPS_S1_", &[true, false, true]), // (T const*, T*, T const*)
            ("_Z3addPVKfPKPf", &[true, true]),          // (float const volatile*, float* const*)
            ("_Z3addPPKf", &[false]),                   // (float const**)
            ("_Z3add4ArgsPKf", &[false, true]),         // (Args, float const*)
        ] {
            assert_eq!(constants(name).as_deref(), Some(expected), "{name}");
        }
        for name in [
            "add",
            "_Z3addIfEvPKT_",
            "_Z3addPKfDv4_f",
            "_Z3addSt6vectorIiE",
            "_Z",
            "_Z9add",
            "_Z3addP",
            "_Z3addPKfS9_",
            "_Z3addRKf.clone",
        ] {
            assert_eq!(constants(name), None, "{name}");
        }
    }
}

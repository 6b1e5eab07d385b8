//! The code that the rows of `src/api/functions.txt` stand for.

use std::fmt::Write;

/// A row: a function that is intercepted.
struct Row<'a> {
    /// Its first column: `copy`, and in brackets `async`, `regular`.
    effect: &'a str,
    details: Vec<&'a str>,
    layer: &'a str,
    since: u32,
    name: &'a str,
    /// Names and types.
    arguments: Vec<(&'a str, &'a str)>,
}

/// All rows, and the symbol versions under which functions of the runtime and of HIP are exported.
pub(crate) struct Table<'a> {
    rows: Vec<Row<'a>>,
    runtime_versions: Vec<&'a str>,
    hip_versions: Vec<&'a str>,
}

/// Appends lines. Writing to a string cannot fail.
macro_rules! add {
    ($out:expr, $($line:tt)*) => {{ let _ = writeln!($out, $($line)*); }};
}

impl<'a> Table<'a> {
    /// Reads the file. The error names the line.
    pub(crate) fn read(text: &'a str) -> Result<Self, String> {
        let mut table = Self { rows: Vec::new(), runtime_versions: Vec::new(), hip_versions: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            if let Some(versions) = line.strip_prefix("versions runtime ") {
                table.runtime_versions = versions.split_whitespace().collect();
            } else if let Some(versions) = line.strip_prefix("versions hip ") {
                table.hip_versions = versions.split_whitespace().collect();
            } else {
                let row = Row::read(line).map_err(|why| format!("line {}: {why}: {line}", number + 1))?;
                table.rows.push(row);
            }
        }
        Ok(table)
    }

    /// The symbol versions of a layer, if it has any.
    fn versions(&self, layer: &str) -> &[&'a str] {
        match layer {
            "runtime" => &self.runtime_versions,
            "hip" => &self.hip_versions,
            _ => &[],
        }
    }

    /// The enum of all functions, and their columns.
    pub(crate) fn functions(&self) -> String {
        let mut out = String::new();
        let all = |of: &dyn Fn(&Row<'_>) -> String| self.rows.iter().map(of).collect::<String>();
        add!(out, "/// An intercepted function; the variants have the vendor's names.");
        add!(out, "#[derive(Clone, Copy, Debug, PartialEq, Eq)]\n#[repr(u16)]");
        add!(out, "#[allow(non_camel_case_types, reason = \"the vendor's spelling\")]");
        add!(out, "pub(crate) enum Function {{\n{}}}\n", all(&|row| format!("    {},\n", row.name)));
        add!(out, "/// All functions, in the order of the table.");
        add!(out, "const ALL: &[Function] = &[\n{}];\n", all(&|row| format!("    Function::{},\n", row.name)));
        add!(out, "const LAYERS: &[Layer] = &[\n{}];\n", all(&|row| format!("    Layer::{},\n", row.layer_name())));
        add!(out, "const EFFECTS: &[Effect] = &[\n{}];\n", all(&|row| format!("    {},\n", row.effect_value())));
        // One text, since each reference to one would cost its 40 bytes.
        let (mut text, mut rows) = (String::new(), String::new());
        for Row { since, name, arguments, .. } in &self.rows {
            let (at, arguments) = (text.len(), Self::names(arguments));
            let lengths = format!("name: {}, base: {}, arguments: {}", name.len(), base(name).len(), arguments.len());
            let per_thread = name.ends_with("_ptds") || name.ends_with("_ptsz");
            add!(rows, "    Row {{ since: {since}, at: {at}, {lengths}, per_thread: {per_thread} }}, // {name}");
            let _ = write!(text, "{name}\0{arguments}");
        }
        add!(out, "const ROWS: &[Row] = &[\n{rows}];\n\nconst TEXT: &str = {text:?};\n");
        for (name, of, versions) in [("RUNTIME", "runtime", &self.runtime_versions), ("HIP", "hip", &self.hip_versions)]
        {
            let versions: Vec<_> = versions.iter().map(|version| format!("c\"{version}\"")).collect();
            add!(out, "/// The symbol versions under which functions of layer `{of}` are exported.");
            add!(out, "pub(crate) const {name}_VERSIONS: &[&CStr] = &[{}];", versions.join(", "));
        }
        out
    }

    /// The names of arguments, one behind the other.
    fn names(arguments: &[(&str, &str)]) -> String {
        arguments.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }

    /// The slots of each function.
    pub(crate) fn slots(&self) -> String {
        let mut out = String::from("/// The slots of each function; trampolines refer to them by name.\n");
        add!(out, "#[expect(non_upper_case_globals, reason = \"the vendor's spelling\")]");
        add!(out, "pub(crate) mod slots {{\n    use super::*;\n");
        for Row { name, layer, .. } in &self.rows {
            let count = match *layer {
                "runtime" => "RUNTIME_SLOTS",
                "hip" => "HIP_SLOTS",
                _ => "DRIVER_SLOTS",
            };
            add!(out, "    pub(crate) static {name}: [Slot; {count}] = [const {{ Slot::empty() }}; {count}];");
        }
        add!(out, "}}\n\n/// Where the calls of a function go, by route.");
        add!(out, "pub(crate) fn of(function: Function) -> &'static [Slot] {{\n    match function {{");
        for Row { name, .. } in &self.rows {
            add!(out, "        Function::{name} => &slots::{name},");
        }
        add!(out, "    }}\n}}");
        out
    }

    /// The hooks, each with the signature of the real function.
    pub(crate) fn hooks(&self) -> String {
        self.rows.iter().map(Row::hook).collect()
    }

    /// The trampolines into each hook, whose instructions are `machine`'s, and the exported symbols.
    pub(crate) fn trampolines(&self, machine: &str) -> String {
        let instructions = machine.lines().filter(|line| !line.starts_with('#'));
        let instructions: String = instructions.map(|line| format!("    {line}\n")).collect();
        let mut out = String::new();
        for row in &self.rows {
            row.trampolines(&mut out, &instructions, self.versions(row.layer));
        }
        add!(out, "unsafe extern \"C\" {{");
        for row in &self.rows {
            add!(out, "    static p2p_{}: u8;", row.name);
            if !row.has_versions() {
                add!(out, "    #[cfg(not(test))]\n    static p2p_export_{}: u8;", row.name);
            }
        }
        add!(out, "}}\n\n/// The routes into a function.");
        add!(out, "pub(crate) fn entrance(function: Function) -> Entrance {{\n    match function {{");
        for row in &self.rows {
            let name = row.name;
            if row.has_versions() {
                add!(out, "        Function::{name} => Entrance::new(&slots::{name}, &raw const p2p_{name}, None),");
                continue;
            }
            add!(out, "        #[cfg(not(test))]\n        Function::{name} => {{");
            add!(
                out,
                "            Entrance::new(&slots::{name}, &raw const p2p_{name}, Some(&raw const p2p_export_{name}))"
            );
            // Nothing else keeps the function in a program that exports nothing.
            add!(out, "        }}\n        #[cfg(test)]\n        Function::{name} => {{");
            add!(
                out,
                "            Entrance::new(&slots::{name}, &raw const p2p_{name}, Some({name} as *const u8))\n        }}"
            );
        }
        add!(out, "    }}\n}}");
        out
    }

    /// The version script of the linker. The symbols themselves are assigned in the trampolines.
    pub(crate) fn export_map(&self) -> String {
        // The first node is a dummy: glibc lets a reference without a version take version index 2, which would otherwise be the oldest runtime.
        // Its list also hides Rust's symbols, and the linker's own, from linkers that honour this script only.
        let mut out = String::from("P2PSHIM_0 { local: _R*; _ZN*; rust_*; __rust*; p2p_*; _end; };\n");
        for version in self.runtime_versions.iter().chain(&self.hip_versions) {
            add!(out, "{version} {{ }};");
        }
        // Defaults, for references without a version.
        out.push_str("P2PSHIM { };\n");
        out
    }
}

/// The name of a function without the suffixes of its default stream and of its version.
fn base(name: &str) -> &str {
    let name = ["_ptds", "_ptsz", "_spt"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Result<Self, &'static str> {
        const COLUMNS: &str = "a row is: effect layer since symbol(name: Type, ...)";
        let end = match (line.find(' '), line.find('(')) {
            (Some(space), Some(bracket)) if bracket < space => line.find(')').ok_or(COLUMNS)? + 1,
            (Some(space), _) => space,
            (None, _) => return Err(COLUMNS),
        };
        let (effect, rest) = line.split_at(end);
        let (effect, details) = effect.split_once('(').unwrap_or((effect, ""));
        let (head, arguments) = rest.split_once('(').ok_or(COLUMNS)?;
        let [layer, since, name] = head.split_whitespace().collect::<Vec<_>>()[..] else { return Err(COLUMNS) };
        if !["runtime", "driver", "hip", "nvml"].contains(&layer) {
            return Err("the layer is runtime, driver, hip or nvml");
        }
        let arguments = arguments.strip_suffix(')').ok_or(COLUMNS)?.split(", ").filter(|argument| !argument.is_empty());
        Ok(Self {
            effect,
            details: details.trim_end_matches(')').split(", ").filter(|detail| !detail.is_empty()).collect(),
            layer,
            since: since.parse().map_err(|_| "the version is a number: 12080 for 12.8")?,
            name,
            arguments: arguments.map(|argument| argument.split_once(": ").ok_or(COLUMNS)).collect::<Result<_, _>>()?,
        })
    }

    /// Whether the symbol is exported under versions.
    fn has_versions(&self) -> bool {
        matches!(self.layer, "runtime" | "hip")
    }

    fn layer_name(&self) -> &'static str {
        match self.layer {
            "runtime" => "Runtime",
            "driver" => "Driver",
            "hip" => "Hip",
            _ => "Nvml",
        }
    }

    /// The value of `Effect` that the first column stands for. The compiler says if there is no such thing.
    fn effect_value(&self) -> String {
        let detail = self.details.first().unwrap_or(&"");
        let has = |word| self.details.contains(&word);
        match self.effect {
            "traced" => "Effect::Traced".into(),
            "lookup" => "Effect::Lookup".into(),
            "copy" => format!(
                "Effect::Copy(CopyKind {{ is_async: {}, is_refused_in_capture: {}, is_regular: {} }})",
                has("async"),
                has("refused_in_capture"),
                has("regular")
            ),
            "copies" => format!("Effect::Copies(Copies::{detail})"),
            "host" => format!("Effect::Host(Half::{detail})"),
            "access" => format!("Effect::Access(AccessKind::{detail})"),
            "state" => format!("Effect::State(State::{detail})"),
            "order" => format!("Effect::Order(Order::{detail})"),
            other => other.into(),
        }
    }

    /// A list of something for each argument.
    fn list(arguments: &[(&str, &str)], of: impl Fn(&str, &str) -> String) -> String {
        arguments.iter().map(|(name, kind)| of(name, kind)).collect::<Vec<_>>().join(", ")
    }

    /// The hook: it finds the real function, and hands the call to the path that goes with the effect.
    fn hook(&self) -> String {
        // From CUDA 13.0 on a batch of the runtime has one parameter less. Its place on the stack is the caller's own then, which a compiler may write
        // to where it is a parameter: so the hook does not declare it.
        if self.layer == "runtime" && self.effect == "copies" && self.details == ["batch"] {
            return self.hook_of_batch();
        }
        let (name, detail) = (self.name, self.details.first().unwrap_or(&""));
        let mut out = self.head(&self.arguments);
        let names = Self::list(&self.arguments, |name, _| name.into());
        add!(out, "    // SAFETY: a function's slots hold nothing but what was looked up under its name.");
        add!(out, "    let real: {} = unsafe {{ transmute(found) }};", Self::pointer(&self.arguments));
        if self.effect != "lookup" {
            let values = Self::list(&self.arguments, |name, _| format!("{name}.value()"));
            add!(out, "    let values = &mut [{values}];");
        }
        if let Some(index) = self.fail_index() {
            add!(out, "    let values = batch::declared(found.as_ptr(), {index}, values);");
        }
        const SAFETY: &str = "    // SAFETY: the arguments are the program's own, unchanged.";
        let real = format!("|| unsafe {{ real({names}) }}");
        // Every client of CUDA ends in the driver; HIP has one layer.
        let is_last = matches!(self.layer, "driver" | "hip");
        // No closure around the call: what is known of the arguments at compile time would be lost.
        let mut seen = |call: String| match is_last {
            true => {
                add!(out, "    let begun = order::begin(Function::{name}, caller, values);\n{SAFETY}");
                add!(out, "    let ret = {call};");
                add!(out, "    order::end(begun, (Function::{name}, caller), values, ret);\n    ret");
            }
            false => add!(out, "{SAFETY}\n    {call}"),
        };
        match self.effect {
            "state" => {
                let by = "(caller, found.as_ptr().cast_const())";
                seen(format!("change::changing(Function::{name}, State::{detail}, {by}, values, {real})"));
            }
            "host" => seen(format!("host::half(Function::{name}, Half::{detail}, caller, values, {real})")),
            "order" => seen(format!("unsafe {{ real({names}) }}")),
            "copy" | "copies" => {
                seen(format!("run::traced(Function::{name}, caller, found.as_ptr(), values, {real})"));
            }
            "lookup" => {
                add!(out, "{SAFETY}\n    let ret = unsafe {{ real({names}) }};\n    if ret == Code::SUCCESS {{");
                add!(out, "        // SAFETY: the real function took these and succeeded.");
                match self.layer {
                    "hip" => add!(out, "        unsafe {{ lookup::replace_hip({}) }};", self.looked_up(2)),
                    _ => add!(out, "        unsafe {{ lookup::replace({}) }};", self.looked_up(4)),
                }
                add!(out, "    }}\n    ret");
            }
            _ => add!(out, "{SAFETY}\n    run::traced(Function::{name}, caller, found.as_ptr(), values, {real})"),
        }
        out.push_str("}\n\n");
        out
    }

    /// The place of the argument that batches of the runtime lost with 13.0.
    fn fail_index(&self) -> Option<usize> {
        let is_it = |(name, _): &(&str, &str)| *name == "failIdx" && self.layer == "runtime";
        self.arguments.iter().position(is_it)
    }

    /// The first arguments of a look-up as a function of `lookup.rs` takes them.
    fn looked_up(&self, count: usize) -> String {
        let arguments = self.arguments.iter().take(count);
        let values =
            arguments.map(|(name, kind)| format!("{name}.0{}", if *kind == "Pointer" { ".cast()" } else { "" }));
        values.collect::<Vec<_>>().join(", ")
    }

    /// The type of the real function.
    fn pointer(arguments: &[(&str, &str)]) -> String {
        format!("unsafe extern \"C-unwind\" fn({}) -> Code", Self::list(arguments, |_, kind| format!("abi::{kind}")))
    }

    /// The hook until it has found the real function.
    fn head(&self, arguments: &[(&str, &str)]) -> String {
        let mut out = String::new();
        let (name, parameters) = (self.name, Self::list(arguments, |name, kind| format!("{name}: abi::{kind}")));
        let separator = if parameters.is_empty() { "" } else { ", " };
        add!(out, "/// # Safety\n/// As the real function asks of its caller; entered from its trampolines only.");
        add!(
            out,
            "pub(crate) unsafe extern \"C-unwind\" fn {name}({parameters}{separator}arrival: Arrival) -> Code {{"
        );
        add!(out, "    // SAFETY: a trampoline of this function made the arrival.");
        add!(out, "    let caller = unsafe {{ Caller::new(arrival) }};");
        add!(out, "    let Some(found) = caller.real(Function::{name}) else {{");
        add!(out, "        return unavailable(Function::{name}, caller);\n    }};");
        out
    }

    fn hook_of_batch(&self) -> String {
        let Some(((last, kind), declared)) = self.arguments.split_last() else { return String::new() };
        let names = Self::list(declared, |name, _| name.into());
        let values = Self::list(declared, |name, _| format!("{name}.value()"));
        let name = self.name;
        let mut out = self.head(declared);
        add!(out, "    let has_last = batch::has_fail_index(found.as_ptr());");
        add!(out, "    // SAFETY: the function has the parameter, so the caller has passed it.");
        add!(out, "    let {last} = if has_last {{ unsafe {{ caller.parameter({}) }} }} else {{ 0 }};", declared.len());
        add!(out, "    let {last} = abi::{kind}({last} as _);");
        add!(out, "    let values = &mut [{values}, {last}.value()];");
        if let Some(index) = self.fail_index() {
            add!(out, "    let values = batch::declared(found.as_ptr(), {index}, values);");
        }
        add!(out, "    run::traced(Function::{name}, caller, found.as_ptr(), values, || {{");
        add!(out, "        if has_last {{");
        add!(out, "            // SAFETY: a function's slots hold nothing but what was looked up under its name.");
        add!(out, "            let real: {} = unsafe {{ transmute(found) }};", Self::pointer(&self.arguments));
        add!(out, "            // SAFETY: the arguments are the program's own, unchanged.");
        add!(out, "            return unsafe {{ real({names}, {last}) }};");
        add!(out, "        }}");
        add!(out, "        // SAFETY: as above; from 13.0 on it has one parameter less.");
        add!(out, "        let real: {} = unsafe {{ transmute(found) }};", Self::pointer(declared));
        add!(out, "        // SAFETY: as above.");
        add!(out, "        unsafe {{ real({names}) }}");
        add!(out, "    }})\n}}\n");
        out
    }

    /// The trampolines of the function, in the order of its slots: those that look-ups claim, then its exports.
    fn trampolines(&self, out: &mut String, instructions: &str, versions: &[&str]) {
        let name = self.name;
        add!(out, "global_asm!(\n    r#\"\n.macro p2p_route\n    .p2align 6, 0xcc");
        out.push_str(instructions);
        add!(out, "    .set p2p_offset, p2p_offset + {{slot_size}}\n.endm");
        add!(out, ".section .text.p2p_{name},\"ax\",@progbits\n.p2align 6, 0xcc");
        add!(out, ".globl p2p_{name}\n.hidden p2p_{name}\n.type p2p_{name}, @function\np2p_{name}:");
        add!(
            out,
            "# A trampoline leaves the stack as it is, so one entry tells an unwinder about all of them.\n.cfi_startproc"
        );
        add!(out, ".set p2p_offset, 0\n.rept {{claimable}}\n    p2p_route\n.endr\n.size p2p_{name}, . - p2p_{name}");
        if self.has_versions() {
            add!(out, "# A test program must not export what it is about to look up.\n.if {{is_library}}");
            let default = [("@@", "P2PSHIM")].into_iter();
            for (at, version) in default.chain(versions.iter().map(|version| ("@", *version))) {
                let label = format!("p2p_{name}_{version}");
                add!(out, ".p2align 6, 0xcc\n.globl {label}\n.type {label}, @function\n{label}:\n    p2p_route");
                add!(out, ".size {label}, . - {label}\n.symver {label}, {name}{at}{version}");
            }
            add!(out, ".endif");
        }
        add!(out, ".cfi_endproc\n.purgem p2p_route\n.text\n\"#,");
        add!(out, "    claimable = const CLAIMABLE,\n    slot_size = const size_of::<Slot>(),");
        if self.has_versions() {
            add!(out, "    is_library = const if cfg!(test) {{ 0 }} else {{ 1 }},");
        }
        add!(out, "    slots = sym slots::{name},\n    hook = sym crate::entry::hooks::{name},\n);\n");
        if self.has_versions() {
            return;
        }
        // Without a version there is nothing to assign: the name of a Rust function is exported as it is.
        add!(out, "#[cfg_attr(not(test), unsafe(no_mangle))]\n#[unsafe(naked)]");
        add!(out, "#[allow(non_snake_case, reason = \"the vendor's spelling\")]");
        add!(out, "unsafe extern \"C\" fn {name}() {{\n    naked_asm!(\n        r#\"");
        add!(
            out,
            "# A name that nobody else can define.\n.globl p2p_export_{name}\n.hidden p2p_export_{name}\np2p_export_{name}:"
        );
        add!(out, ".cfi_startproc\n.set p2p_offset, {{offset}}\n{instructions}.cfi_endproc\n\"#,");
        add!(out, "        offset = const UNVERSIONED * size_of::<Slot>(),");
        add!(out, "        slots = sym slots::{name},\n        hook = sym crate::entry::hooks::{name},\n    )\n}}\n");
    }
}

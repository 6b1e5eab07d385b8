//! A call that fails, or a copy beside a mistake, has one cause, and what is said names it and no other.

use crate::support::{Outcome, Program, path};

/// Numbers that differ from run to run, such as addresses.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("=0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "=ADDRESS" + part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()))
}

/// The findings that a program is told, a sentence each: the rule, the function, and what is wrong.
fn said(program: &Program) -> Vec<String> {
    let plain = program.plain();
    plain.assert_success();
    let preloaded = program.clone().with_notes().findings_apart().preloaded();
    preloaded.assert_same_as(&plain, "preloaded");
    let sentence = |text: &str| {
        let (head, rest) = text.split_once(" at ").unwrap();
        let what = rest.split_once(": ").unwrap().1;
        // The words that follow are the rule's own, for all its cases; of a second place they are left out.
        let ends = [". ", " (p2pshim explain "];
        let what = ends.iter().fold(what, |what, end| what.split_once(end).map_or(what, |(what, _)| what));
        without_addresses(&format!(
            "{}: {what}",
            head.replace(" (error)", "").replace(" (hazard)", "").replace(" (note)", "")
        ))
    };
    preloaded.findings.iter().map(|finding| sentence(&finding.text)).collect()
}

fn case(name: &str, env: &[(&str, &str)]) -> Program {
    let program = Program::case("causes-12").arg(name).env("P2PSIM_DEVICES", "4");
    env.iter().fold(program, |program, (name, value)| program.env(name, *value))
}

fn assert_said(name: &str, env: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(said(&case(name, env)), expected, "{name} {env:?}");
}

// ---- Captures ----

#[test]
fn capture_that_was_lost_earlier_is_not_the_copys_fault() {
    let by = "the capture of the copy's stream was lost before this copy: cuMemFree_v2 had returned \
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)";
    for (name, function, ret) in [
        ("lost_regular", "cudaMemcpyAsync", "cudaErrorStreamCaptureInvalidated (901)"),
        ("lost_peer", "cudaMemcpyPeerAsync", "cudaErrorStreamCaptureUnsupported (900)"),
    ] {
        for capture in ["rewrite", "forward"] {
            let expected = format!("P2P-capture-lost: {function}: {by}; returned {ret}");
            assert_said(name, &[("P2PSHIM_CAPTURE", capture)], &[&expected]);
        }
    }
    let unseen = "P2P-capture-lost: cudaMemcpyPeerAsync: the capture of the copy's stream was lost before this copy; returned \
                  cudaErrorStreamCaptureUnsupported (900)";
    assert_said("lost_unseen", &[], &[unseen]);
}

#[test]
fn capture_that_a_copy_has_lost_is_that_copys_fault_and_not_the_nexts() {
    let own = "P2P-capture-copy: cudaMemcpyPeerAsync: the stream is being captured; returned cudaErrorStreamCaptureUnsupported (900)";
    let later = "P2P-capture-lost: cudaMemcpyPeerAsync: the capture of the copy's stream was lost before this copy: cudaMemcpyPeerAsync had \
                 returned cudaErrorStreamCaptureUnsupported (900); returned cudaErrorStreamCaptureUnsupported (900)";
    assert_said("lost_by_copy", &[("P2PSHIM_CAPTURE", "forward")], &[own, later, own]);
}

// ---- Peer access ----

#[test]
fn access_that_is_not_given_has_one_cause() {
    let returned = "returned cudaErrorPeerAccessUnsupported (217), documented: cudaErrorInvalidDevice (101)";
    for (env, expected) in [
        (
            ("P2PSIM_NO_P2P", "0-1"),
            "P2P-enable-unsupported: cudaDeviceEnablePeerAccess: device 0 cannot access memory of device 1",
        ),
        (
            ("P2PSIM_FAULT", "drop:0-1"),
            "P2P-enable-broken: cudaDeviceEnablePeerAccess: p2pshim refuses device 0 access to device 1: data does not arrive on the path",
        ),
    ] {
        let program = case("enable", &[env]).with_notes().findings_apart();
        let [finding] = &program.preloaded().findings[..] else { panic!("{env:?}") };
        let (rule, what) = expected.split_once(": ").unwrap();
        let what = what.split_once(": ").unwrap().1;
        assert!(finding.rule == rule && finding.text.contains(&format!(": {what}; {returned}. ")), "{}", finding.text);
        let others = ["P2PSHIM_DENY", "P2PSHIM_ACCESS"];
        assert!(!others.iter().any(|other| finding.text.contains(other)), "{}", finding.text);
    }
    for (env, why) in
        [(("P2PSHIM_DENY", "0-1"), "P2PSHIM_DENY names the pair"), (("P2PSHIM_ACCESS", "off"), "P2PSHIM_ACCESS=off")]
    {
        let outcome = case("enable", &[env]).with_notes().findings_apart().preloaded();
        let [finding] = &outcome.findings[..] else { panic!("{outcome:#?}") };
        let what = format!(": p2pshim refuses device 0 access to device 1: {why}; {returned}. ");
        assert!(finding.rule == "P2P-enable-denied" && finding.text.contains(&what), "{}", finding.text);
        assert!(!finding.text.contains("does not arrive") && !finding.text.contains("hardware"), "{}", finding.text);
    }
    // Without a path an option hides nothing.
    let both = [("P2PSIM_NO_P2P", "0-1"), ("P2PSHIM_ACCESS", "off")];
    let unsupported = format!(
        "P2P-enable-unsupported: cudaDeviceEnablePeerAccess: device 0 cannot access memory of device 1; {returned}"
    );
    assert_said("enable", &both, &[&unsupported]);
}

#[test]
fn access_of_the_wrong_context_says_whose_must_be_current() {
    let outcome = case("wrong_current", &[]).with_notes().findings_apart().preloaded();
    let [finding] = &outcome.findings[..] else { panic!("{outcome:#?}") };
    assert_eq!(finding.rule, "P2P-enable-self");
    for part in ["the peer is device 1, and so is the current device", "Make the device current that is to have access"]
    {
        assert!(finding.text.contains(part), "{}", finding.text);
    }
}

#[test]
fn access_names_both_devices() {
    assert_said(
        "twice",
        &[],
        &[
            "P2P-disable-not-enabled: cudaDeviceDisablePeerAccess: access of device 0 to device 1 is not enabled; returned \
             cudaErrorPeerAccessNotEnabled (705)",
            "P2P-error-left-behind: cudaDeviceEnablePeerAccess: an earlier call about peer access left 705 \
             (cudaErrorPeerAccessNotEnabled) pending before this call",
            "P2P-enable-twice: cudaDeviceEnablePeerAccess: access of device 0 to device 1 is already enabled; returned \
             cudaErrorPeerAccessAlreadyEnabled (704)",
        ],
    );
}

#[test]
fn access_beyond_the_limit_says_who_has_it_and_which_path_copies_take() {
    let has = "P2P-enable-limit: cudaDeviceEnablePeerAccess: device 0 has 2 peers, devices 2, 3, which is its limit, and so no access to \
               device 1";
    let direct = "; device 1 has access to device 0, so that copies between the two are direct";
    for (name, path) in [("limit_reached", direct), ("limit_apart", "")] {
        let env = [("P2PSIM_MAX_PEERS", "2"), ("P2PSHIM_ACCESS", "app")];
        let found = said(&case(name, &env));
        assert_eq!(found[0], format!("{has}{path}; returned cudaErrorTooManyPeers (711)"), "{found:#?}");
        assert_eq!(found.iter().any(|found| found.contains("P2P-staged-never-enabled")), path.is_empty(), "{found:#?}");
    }
}

#[test]
fn access_that_is_disabled_under_a_copy_is_named_in_every_mode() {
    let under = "P2P-disable-under-copy: cudaDeviceDisablePeerAccess: access of device 0 to device 1 is disabled while stream 0x";
    for access in ["auto", "app"] {
        let env = [("P2PSHIM_ACCESS", access)];
        let found = said(&case("disables_under_copy", &env));
        assert!(found.len() == 1 && found[0].starts_with(under), "{access}: {found:#?}");
        assert!(
            found[0].ends_with(", with a copy from device 0 to device 1, has unfinished work"),
            "{access}: {found:#?}"
        );
        assert_said("disables_behind_copy", &env, &[]);
    }
}

// ---- Memory and streams ----

#[test]
fn mapped_memory_that_was_refused_says_by_which_code() {
    let env = [("P2PSIM_NO_P2P", "0-1")];
    let refused = "P2P-copy-mapped-no-access: cudaMemcpyPeer: src=ADDRESS is mapped, but its device 0 cannot access it: cuMemSetAccess \
                   returned CUDA_ERROR_INVALID_DEVICE (101) for it; returned cudaErrorInvalidValue (1)";
    assert_said("mapped_refused", &env, &[refused]);
    let log = case("mapped_refused", &env).env("P2PSHIM_LOG", "info").findings_apart().preloaded();
    let staged = log.lines.iter().filter(|line| line.contains("copies are staged")).count();
    let failed = log.lines.iter().position(|line| line.contains("P2P-copy-mapped-no-access")).unwrap();
    let said = log.lines.iter().position(|line| line.contains("copies are staged")).unwrap_or(usize::MAX);
    assert!(staged <= 1 && said > failed, "a copy that failed was not staged: {:#?}", log.lines);
}

#[test]
fn pitch_has_the_name_that_the_function_gives_it() {
    let small = "is smaller than a row of 100 bytes; returned cudaErrorInvalidPitchValue (12)";
    let [async_copy, copy] = [("cudaMemcpy2DAsync", "dpitch"), ("cudaMemcpy2D", "spitch")]
        .map(|(function, pitch)| format!("P2P-copy3d-pitch: {function}: {pitch}=50 {small}"));
    assert_said("pitches", &[], &[&async_copy, &copy]);
}

#[test]
fn stream_of_a_device_that_was_reset_says_so() {
    let expected = "P2P-copy-destroyed-stream: cudaMemcpyPeerAsync: stream=ADDRESS was destroyed when device 1 was reset \
                    (cudaDeviceReset); returned cudaErrorContextIsDestroyed (709)";
    assert_said("reset", &[], &[expected]);
}

#[test]
fn data_that_changed_is_at_a_place_in_the_program() {
    let env = [("P2PSIM_NO_P2P", "0-1"), ("P2PSHIM_READBACK", "all")];
    let program = case("source_overwritten", &env).with_notes().findings_apart();
    // Whether the other thread writes between a copy and its being read back is up to the scheduler.
    let changed_in = |outcome: Outcome| {
        let changed =
            outcome.findings.into_iter().filter(|finding| finding.rule == "P2P-data-changed").collect::<Vec<_>>();
        (!changed.is_empty()).then_some(changed)
    };
    let changed = (0..20).find_map(|_| changed_in(program.preloaded())).expect("no run of 20 has the finding");
    let library = path("target/built/libp2pshim.so");
    let library = library.file_name().unwrap().to_string_lossy();
    for finding in changed {
        let place = finding.text.split_once(" at ").unwrap().1.split_once(": ").unwrap().0;
        assert!(place.starts_with("causes-12+0x") && !place.contains(&*library), "{place}");
    }
}

// ---- Pending errors ----

#[test]
fn error_that_was_pending_before_a_copy_is_not_the_copys() {
    let left = |code: &str, function: &str| {
        format!(
            "P2P-error-left-behind: {function}: a call that p2pshim does not check left {code} pending before this copy"
        )
    };
    let expected = [
        left("400 (cudaErrorInvalidResourceHandle)", "cudaMemcpyPeerAsync"),
        left("712 (cudaErrorHostMemoryAlreadyRegistered)", "cudaMemcpyPeer"),
    ];
    assert_said("pending", &[], &expected.each_ref().map(String::as_str));
}

#[test]
fn error_of_a_call_that_is_checked_is_said_of_that_call() {
    let found = said(&case("pending_of_checked", &[]));
    assert!(found.len() == 1 && found[0].starts_with("P2P-copy-past-allocation: "), "{found:#?}");
    assert_said(
        "pending_access",
        &[],
        &[
            "P2P-disable-not-enabled: cudaDeviceDisablePeerAccess: access of device 0 to device 1 is not enabled; returned \
             cudaErrorPeerAccessNotEnabled (705)",
            "P2P-error-left-behind: cudaMemcpyPeerAsync: an earlier call about peer access left 705 (cudaErrorPeerAccessNotEnabled) \
             pending before this copy",
        ],
    );
}

// ---- HIP ----

#[test]
fn hip_access_that_is_not_given_has_one_cause() {
    for (env, rule, why) in [
        (("P2PSIM_FAULT", "drop:0-1"), "P2P-enable-broken", "data does not arrive on the path"),
        (("P2PSHIM_DENY", "0-1"), "P2P-enable-denied", "P2PSHIM_DENY names the pair"),
        (("P2PSHIM_ACCESS", "off"), "P2P-enable-denied", "P2PSHIM_ACCESS=off"),
    ] {
        let program = Program::case("hip_guide-6").env("P2PSIM_DEVICES", "2").env(env.0, env.1).findings_apart();
        let found = program.preloaded().findings;
        let enabling: Vec<_> = found.iter().filter(|finding| finding.function == "hipDeviceEnablePeerAccess").collect();
        let what =
            format!(": p2pshim refuses device 0 access to device 1: {why}; returned hipErrorInvalidDevice (101). ");
        assert!(enabling[0].rule == rule && enabling[0].text.contains(&what), "{enabling:#?}");
    }
}

#[test]
fn hip_copy_past_its_memory_is_explained_whatever_came_before() {
    for release in ["5", "6", "7"] {
        for before in ["first", "right", "failed"] {
            let found = said(&Program::case(&format!("hip_past_end-{release}")).arg(before).env("P2PSIM_DEVICES", "2"));
            let past = "P2P-copy-past-allocation: hipMemcpy2DAsync: src=ADDRESS: the copy needs 17408 bytes, but 16896 are left of the \
                        allocation; returned hipErrorInvalidValue (1)";
            assert_eq!(found.last().map(String::as_str), Some(past), "{release} {before}: {found:#?}");
            assert_eq!(found.len(), if before == "failed" { 2 } else { 1 }, "{release} {before}: {found:#?}");
        }
    }
}

//! docs/fleet/: the prolog for Slurm and the manifest for Kubernetes, with stand-ins for `scontrol` and `kubectl`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Scratch, command, path};

/// A node: a folder for what it keeps, with programs that are found before those of the machine.
struct Node {
    folder: Scratch,
}

impl Node {
    /// Its `p2pshim` has two simulated GPUs, and notes that it was asked.
    fn new(name: &str) -> Self {
        let node = Self { folder: Scratch::new(name) };
        fs::create_dir_all(node.folder.join("bin")).unwrap();
        let tested = "echo x >>\"$STATE/tested\"";
        let doctor = format!("{tested}\nexec {} \"$@\" --sim 2 --quick --timeout 600", command().display());
        node.script("p2pshim", &doctor);
        node
    }

    fn script(&self, name: &str, text: &str) {
        let file = self.folder.join("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The status of a command there, with that fault of its GPUs.
    fn ends(&self, command: &mut Command, fault: &str) -> Option<i32> {
        let path = format!("{}:{}", self.folder.join("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("STATE", &self.folder).env("P2PSIM_FAULT", fault);
        command.env("XDG_CACHE_HOME", self.folder.join("cache")).status().unwrap().code()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    fn lines(&self, name: &str) -> usize {
        self.read(name).lines().count()
    }
}

fn prolog(node: &Node, fault: &str, nodes: &Path) -> Option<i32> {
    let mut command = Command::new(path("docs/fleet/slurm-prolog.sh"));
    node.ends(command.env("P2PSHIM_NODES", nodes).env("SLURMD_NODENAME", "node1"), fault)
}

#[test]
fn slurm_prolog_drains_a_node_that_is_unsafe_and_tests_a_good_one_once() {
    let node = Node::new("prolog");
    node.script("scontrol", "echo \"$@\" >>\"$STATE/drained\"");
    let prolog = |fault| prolog(&node, fault, &node.folder);
    assert_eq!([prolog("drop:0>1"), prolog("drop:0>1")], [Some(1); 2]);
    assert_eq!([node.lines("tested"), node.lines("drained")], [2; 2]);
    let drained = node.read("drained");
    assert!(drained.starts_with("update nodename=node1 state=drain reason=p2pshim doctor: "), "{drained}");
    assert_eq!([prolog(""), prolog(""), prolog("")], [Some(0); 3]);
    assert_eq!([node.lines("tested"), node.lines("drained")], [3, 2], "a good node is tested once");
}

#[test]
fn slurm_prolog_of_a_good_node_whose_disk_is_full_does_not_drain_it() {
    let node = Node::new("full");
    node.script("scontrol", "echo \"$@\" >>\"$STATE/drained\"");
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    symlink("/dev/full", node.folder.join(format!("{}.json", name.trim()))).unwrap();
    assert_eq!(prolog(&node, "", &node.folder), Some(0));
    assert_eq!([node.lines("tested"), node.lines("drained")], [1, 0]);
    assert_eq!(prolog(&node, "drop:0>1", &node.folder), Some(1), "it is drained if it is not good");
    assert_eq!([node.lines("tested"), node.lines("drained")], [2, 1]);
    assert_eq!(prolog(&node, "", Path::new("/proc/none")), Some(0), "nor if nothing can be written at all");
    fs::remove_file(node.folder.join(format!("{}.json", name.trim()))).unwrap();
    // Nothing can be made where the prolog notes that a node is good.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    symlink("/proc/none/at", node.folder.join(format!("{}.{}", name.trim(), boot.trim()))).unwrap();
    node.script("rm", "");
    assert_eq!(prolog(&node, "", &node.folder), Some(0));
    assert_eq!(node.lines("drained"), 1);
}

/// The objects of the manifest, by kind.
fn manifest() -> BTreeMap<String, Value> {
    let text = fs::read_to_string(path("docs/fleet/kubernetes.yaml")).unwrap();
    let all = text.split("\n---\n").map(|one| serde_yaml_ng::from_str::<Value>(one).unwrap());
    all.map(|one| (one["kind"].as_str().unwrap().to_owned(), one)).collect()
}

/// Names of fields that Kubernetes does not know it leaves out with a warning: an object may have these only. `*` is a name of the user's.
const FIELDS: [&str; 40] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "rules[].apiGroups[]",
    "rules[].resources[]",
    "rules[].verbs[]",
    "roleRef.apiGroup",
    "roleRef.kind",
    "roleRef.name",
    "subjects[].kind",
    "subjects[].name",
    "subjects[].namespace",
    "spec.selector.matchLabels.*",
    "spec.template.metadata.labels.*",
    "spec.template.spec.serviceAccountName",
    "spec.template.spec.runtimeClassName",
    "spec.template.spec.nodeSelector.*",
    "spec.template.spec.tolerations[].operator",
    "spec.template.spec.tolerations[].key",
    "spec.template.spec.tolerations[].value",
    "spec.template.spec.tolerations[].effect",
    "spec.template.spec.volumes[].name",
    "spec.template.spec.volumes[].hostPath.path",
    "spec.template.spec.volumes[].hostPath.type",
    "spec.template.spec.initContainers[].name",
    "spec.template.spec.initContainers[].image",
    "spec.template.spec.initContainers[].command[]",
    "spec.template.spec.initContainers[].env[].name",
    "spec.template.spec.initContainers[].env[].value",
    "spec.template.spec.initContainers[].env[].valueFrom.fieldRef.fieldPath",
    "spec.template.spec.initContainers[].volumeMounts[].name",
    "spec.template.spec.initContainers[].volumeMounts[].mountPath",
    "spec.template.spec.containers[].name",
    "spec.template.spec.containers[].image",
    "spec.template.spec.containers[].command[]",
    "spec.template.spec.containers[].env[].name",
    "spec.template.spec.containers[].env[].value",
    "spec.template.spec.containers[].volumeMounts[].name",
    "spec.template.spec.containers[].volumeMounts[].mountPath",
];

/// Fields with a text, where they are, that are none of these, or have no text.
fn unknown(value: &Value, at: &str, found: &mut Vec<String>) {
    let is_known = |at: &str| {
        let any = at.rsplit_once('.').map(|(above, _)| format!("{above}.*"));
        FIELDS.contains(&at) || any.is_some_and(|any| FIELDS.contains(&any.as_str()))
    };
    match value {
        Value::Object(all) => all.iter().for_each(|(name, one)| {
            // A label has dots of its own.
            let name = name.replace('.', "_");
            unknown(one, &if at.is_empty() { name } else { format!("{at}.{name}") }, found);
        }),
        Value::Array(all) => all.iter().for_each(|one| unknown(one, &format!("{at}[]"), found)),
        Value::String(_) if is_known(at) => {}
        _ => found.push(format!("{at}: {value}")),
    }
}

/// The names of a list.
fn names<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().into_iter().flatten().map(|one| one[key].as_str().unwrap()).collect()
}

#[test]
fn kubernetes_manifest_has_the_fields_that_there_are_and_names_that_meet() {
    let all = manifest();
    let mut found = Vec::new();
    all.values().for_each(|one| unknown(one, "", &mut found));
    assert_eq!(found, Vec::<String>::new());
    let kinds: Vec<(&str, &str)> =
        all.values().map(|one| (one["kind"].as_str().unwrap(), one["apiVersion"].as_str().unwrap())).collect();
    let rbac = "rbac.authorization.k8s.io/v1";
    let expected = [("ClusterRole", rbac), ("ClusterRoleBinding", rbac), ("DaemonSet", "apps/v1")];
    assert_eq!(kinds, [&expected[..], &[("Namespace", "v1"), ("ServiceAccount", "v1")]].concat());
    let (account, set, binding) = (&all["ServiceAccount"]["metadata"], &all["DaemonSet"], &all["ClusterRoleBinding"]);
    let namespace = &all["Namespace"]["metadata"]["name"];
    assert_eq!([&account["namespace"], &set["metadata"]["namespace"]], [namespace; 2]);
    assert_eq!(binding["roleRef"]["name"], all["ClusterRole"]["metadata"]["name"]);
    let subject = json!({"kind": "ServiceAccount", "name": account["name"], "namespace": namespace});
    assert_eq!(binding["subjects"], json!([subject]));
    // `kubectl taint` and `kubectl get` of a node that is named.
    let rule = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]});
    assert_eq!(all["ClusterRole"]["rules"], json!([rule]));
    let template = &set["spec"]["template"];
    assert_eq!(set["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
    let pod = &template["spec"];
    assert_eq!(pod["serviceAccountName"], account["name"]);
    assert_eq!(
        pod["tolerations"],
        json!([{"operator": "Exists"}]),
        "a pod that has to come onto a node with any taint"
    );
    assert_eq!(pod["nodeSelector"], json!({"nvidia.com/gpu.present": "true"}), "no GPU, no driver");
    let root = p2pshim_host::verdicts::Cache::of_system(Path::new("/"));
    let volume = json!({"path": root.folder(), "type": "DirectoryOrCreate"});
    assert_eq!(pod["volumes"], json!([{"name": "verdicts", "hostPath": volume}]));
    let doctor = &pod["initContainers"][0];
    assert_eq!(doctor["volumeMounts"], json!([{"name": "verdicts", "mountPath": root.folder()}]));
    assert_eq!(names(&doctor["env"], "name"), ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NODE"]);
    // Images without a shell run what they bring.
    let containers = [&pod["initContainers"], &pod["containers"]].into_iter().flat_map(|all| all.as_array().unwrap());
    for container in containers.filter(|it| it["image"].as_str().unwrap().starts_with("registry.k8s.io/")) {
        assert_eq!(container["command"], Value::Null, "{container}");
    }
    let mut damaged = set.clone();
    damaged["spec"]["template"]["spec"]["toleration"] = json!([{"operator": "Exists"}]);
    damaged["spec"]["template"]["spec"]["containers"][0]["image"] = Value::Null;
    unknown(&damaged, "", &mut found);
    let pod = "spec.template.spec";
    assert_eq!(found, [format!("{pod}.containers[].image: null"), format!("{pod}.toleration[].operator: \"Exists\"")]);
}

/// The taints of a node, as `kubectl` changes and shows them. It removes none that is not there.
const KUBECTL: &str = r#"
taints=$STATE/taints
touch "$taints"
case $* in
"taint node node1 p2pshim/peer-access=unsafe:NoSchedule --overwrite") echo p2pshim/peer-access >>"$taints" ;;
"taint node node1 p2pshim/peer-access-")
    grep -qx p2pshim/peer-access "$taints" || { echo 'error: taint "p2pshim/peer-access" not found' >&2; exit 1; }
    grep -vx p2pshim/peer-access "$taints" >"$taints.new"
    mv "$taints.new" "$taints"
    ;;
"get node node1 -o jsonpath={.spec.taints[*].key}") tr '\n' ' ' <"$taints" | sed 's/ $//' ;;
*) echo "error: unknown: $*" >&2; exit 1 ;;
esac
"#;

#[test]
fn kubernetes_taints_an_unsafe_node_and_takes_only_that_back() {
    let node = Node::new("kubernetes");
    node.script("kubectl", KUBECTL);
    let all = manifest();
    let command = &all["DaemonSet"]["spec"]["template"]["spec"]["initContainers"][0]["command"];
    let words: Vec<&str> = command.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let run = |fault: &str| node.ends(Command::new(words[0]).args(&words[1..]).env("NODE", "node1"), fault);
    let taints = || node.read("taints").lines().map(str::to_owned).collect::<Vec<_>>();
    fs::write(node.folder.join("taints"), "nvidia.com/gpu\np2pshim/peer-access-of-another\n").unwrap();
    let others = taints();
    let with_ours = [&others[..], &["p2pshim/peer-access".to_owned()]].concat();
    for (fault, status, expected) in [
        ("", 0, &others),
        ("drop:0>1", 0, &with_ours),
        // Nothing is tested: all stays.
        ("code:cuInit:999@1", 1, &with_ours),
        ("", 0, &others),
        ("code:cuInit:999@1", 1, &others),
    ] {
        assert_eq!((run(fault), &taints()), (Some(status), expected), "{fault}");
    }
    assert_eq!(node.lines("tested"), 5);
    // The API cannot be reached: the kubelet starts the container again.
    node.script("kubectl", "exit 1");
    assert_eq!([run(""), run("drop:0>1")], [Some(1); 2]);
}

//! Finds or builds a User Mode Linux kernel.
//!
//! The order: `--kernel PATH`, `$HAUL_LAB_KERNEL`, the cache of `haul-lab kernel`, in real time package `user-mode-linux`.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::UmlError;
use crate::programs;

/// The variable that names a kernel.
pub const KERNEL_VARIABLE: &str = "HAUL_LAB_KERNEL";
const PACKAGED: &str = "/usr/bin/linux.uml";
/// Overrides the defaults of `ARCH=um`.
const FRAGMENT: &str = include_str!("../../uml/fragment.config");

/// Possible places of kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// `--kernel`.
    pub asked: Option<PathBuf>,
    /// `$HAUL_LAB_KERNEL`.
    pub variable: Option<PathBuf>,
    /// Built by `haul-lab kernel`.
    pub cache: Option<PathBuf>,
}

/// A kernel and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The program.
    pub path: PathBuf,
    /// The origin of the path.
    pub why: &'static str,
}

impl Places {
    /// The places of this user.
    pub fn of_user(asked: Option<PathBuf>) -> Places {
        let variable = std::env::var_os(KERNEL_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        Places { asked, variable, cache: cached() }
    }
}

/// The first that exists; a named one must exist. Virtual time needs its support.
pub fn find(places: &Places, virtual_time: bool) -> Result<Found, UmlError> {
    let found = choose(places, virtual_time, &|path| path.is_file())?;
    if virtual_time && !knows_virtual_time(&found.path) {
        return Err(UmlError::Refused {
            what: format!("the kernel {}", found.path.display()),
            why: "has no virtual time (time-travel): build one with haul-lab kernel, or use --engine uml".into(),
        });
    }
    Ok(found)
}

fn choose(places: &Places, virtual_time: bool, exists: &dyn Fn(&Path) -> bool) -> Result<Found, UmlError> {
    for (path, why) in [(&places.asked, "--kernel"), (&places.variable, KERNEL_VARIABLE)] {
        if let Some(path) = path {
            return match exists(path) {
                true => Ok(Found { path: path.clone(), why }),
                false => Err(UmlError::Refused {
                    what: format!("the kernel {} of {why}", path.display()),
                    why: "there is no such file".into(),
                }),
            };
        }
    }
    let packaged = (!virtual_time).then(|| PathBuf::from(PACKAGED));
    for (path, why) in [(places.cache.clone(), "haul-lab kernel"), (packaged, "package user-mode-linux")] {
        if let Some(path) = path.filter(|path| exists(path)) {
            return Ok(Found { path, why });
        }
    }
    let packaged = if virtual_time { "" } else { ", or install the package user-mode-linux" };
    Err(UmlError::Refused {
        what: "no User Mode Linux kernel".into(),
        why: format!("build one with haul-lab kernel (some ten minutes){packaged}, or name one with --kernel"),
    })
}

/// Looks in the kernel's help. Another kernel would run in real time.
pub fn knows_virtual_time(kernel: &Path) -> bool {
    let output = Command::new(kernel).arg("--help").stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).contains("time-travel")
    })
}

fn cached() -> Option<PathBuf> {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = given.or_else(|| std::env::home_dir().map(|home| home.join(".cache")))?;
    Some(cache.join("haul-lab").join("linux-uml"))
}

/// A build step, shown as typed in a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildStep {
    directory: PathBuf,
    program: &'static str,
    arguments: Vec<String>,
}

impl BuildStep {
    fn new(
        directory: &Path,
        program: &'static str,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> BuildStep {
        let arguments = arguments.into_iter().map(Into::into).collect();
        BuildStep { directory: directory.to_owned(), program, arguments }
    }
}

impl fmt::Display for BuildStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(cd {} && {} {})", self.directory.display(), self.program, self.arguments.join(" "))
    }
}

const TOOLS: [(&str, &str); 11] = [
    ("apt-cache", "apt"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl"),
];

/// Builds a kernel into the user's cache without root, and returns its path. `dry` only prints the commands.
pub fn build(dry: bool, report: &mut dyn Write) -> Result<PathBuf, UmlError> {
    let missing: Vec<(&str, &str)> = TOOLS.into_iter().filter(|(tool, _)| programs::find(tool).is_none()).collect();
    if !missing.is_empty() {
        let tools: Vec<&str> = missing.iter().map(|(tool, _)| *tool).collect();
        let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        packages.dedup();
        return Err(UmlError::Refused {
            what: format!("cannot build a kernel without {}", tools.join(", ")),
            why: format!("install the packages {}", packages.join(" ")),
        });
    }
    let target = cached().ok_or_else(|| UmlError::Refused {
        what: "the cache directory".into(),
        why: "set HOME or XDG_CACHE_HOME".into(),
    })?;
    let build = target.with_file_name("build");
    let package = source_package()?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let steps = steps(&build, &target, &package, jobs);
    if !dry {
        let _ = fs::remove_dir_all(&build);
        fs::create_dir_all(&build).map_err(UmlError::io(format!("make {}", build.display())))?;
        let fragment = build.join(FRAGMENT_NAME);
        fs::write(&fragment, FRAGMENT).map_err(UmlError::io(format!("write {}", fragment.display())))?;
    }
    for step in &steps {
        writeln!(report, "{step}").map_err(UmlError::io("write the report"))?;
        if !dry {
            run(step)?;
        }
    }
    if !dry {
        let _ = fs::remove_dir_all(&build);
    }
    Ok(target)
}

const FRAGMENT_NAME: &str = "haul-lab.config";

fn steps(build: &Path, target: &Path, package: &str, jobs: usize) -> Vec<BuildStep> {
    let source = build.join("source");
    let archive = format!("unpacked/usr/src/{package}.tar.xz");
    let configuration = format!("../{FRAGMENT_NAME}");
    let target = target.display().to_string();
    vec![
        BuildStep::new(build, "apt-get", ["download", package]),
        BuildStep::new(build, "sh", ["-c", "'dpkg-deb -x linux-source-*.deb unpacked'"]),
        BuildStep::new(build, "mkdir", ["source"]),
        BuildStep::new(build, "tar", ["-xf", &archive, "-C", "source", "--strip-components=1"]),
        BuildStep::new(&source, "make", ["ARCH=um", "defconfig"]),
        BuildStep::new(&source, "scripts/kconfig/merge_config.sh", ["-m", ".config", &configuration]),
        BuildStep::new(&source, "make", ["ARCH=um", "olddefconfig"]),
        // Without this check, a setting that the source refuses would be missed only much later.
        BuildStep::new(&source, "grep", ["-q", "CONFIG_UML_TIME_TRAVEL_SUPPORT=y", ".config"]),
        BuildStep::new(&source, "make", ["ARCH=um".to_owned(), format!("-j{jobs}"), "linux".to_owned()]),
        BuildStep::new(&source, "strip", ["-o", &target, "linux"]),
    ]
}

fn source_package() -> Result<String, UmlError> {
    let output = Command::new("apt-cache").args(["depends", "linux-source"]).output();
    let output = output.map_err(UmlError::io("run apt-cache"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    newest(&text).ok_or_else(|| UmlError::Refused {
        what: "no packaged kernel source".into(),
        why: "apt-cache knows no package linux-source: run apt-get update, or build a kernel by hand (ARCH=um)".into(),
    })
}

fn newest(depends: &str) -> Option<String> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).find(|name| name.starts_with("linux-source-")).map(str::to_owned)
}

fn run(step: &BuildStep) -> Result<(), UmlError> {
    let mut command = Command::new(step.program);
    command.args(step.arguments.iter().map(|word| word.trim_matches('\''))).current_dir(&step.directory);
    let status = command.stdin(Stdio::null()).status().map_err(UmlError::io(format!("run {step}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(UmlError::Refused { what: format!("the step {step}"), why: format!("failed ({status})") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(places: &Places, virtual_time: bool, existing: &[&str]) -> String {
        match choose(places, virtual_time, &|path| existing.iter().any(|name| Path::new(name) == path)) {
            Ok(found) => format!("{} ({})", found.path.display(), found.why),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_was_named_comes_first_and_must_exist() {
        let all = ["/a", "/b", "/c", PACKAGED];
        let mut places = Places { asked: Some("/a".into()), variable: Some("/b".into()), cache: Some("/c".into()) };
        assert_eq!(chosen(&places, true, &all), "/a (--kernel)");
        assert_eq!(chosen(&places, true, &all[1..]), "the kernel /a of --kernel: there is no such file");
        places.asked = None;
        assert_eq!(chosen(&places, true, &all), "/b (HAUL_LAB_KERNEL)");
        places.variable = None;
        assert_eq!(chosen(&places, true, &all), "/c (haul-lab kernel)");
        assert_eq!(chosen(&places, false, &all[3..]), "/usr/bin/linux.uml (package user-mode-linux)");
        assert!(chosen(&places, true, &all[3..]).starts_with("no User Mode Linux kernel: build one"));
        assert!(chosen(&places, false, &[]).contains("install the package user-mode-linux"));
    }

    #[test]
    fn a_build_is_ten_commands() {
        let steps = steps(Path::new("/c/build"), Path::new("/c/linux-uml"), "linux-source-6.1", 2);
        let text: String = steps.iter().map(|step| format!("{step}\n")).collect();
        insta::assert_snapshot!(text, @r"
(cd /c/build && apt-get download linux-source-6.1)
(cd /c/build && sh -c 'dpkg-deb -x linux-source-*.deb unpacked')
(cd /c/build && mkdir source)
(cd /c/build && tar -xf unpacked/usr/src/linux-source-6.1.tar.xz -C source --strip-components=1)
(cd /c/build/source && make ARCH=um defconfig)
(cd /c/build/source && scripts/kconfig/merge_config.sh -m .config ../haul-lab.config)
(cd /c/build/source && make ARCH=um olddefconfig)
(cd /c/build/source && grep -q CONFIG_UML_TIME_TRAVEL_SUPPORT=y .config)
(cd /c/build/source && make ARCH=um -j2 linux)
(cd /c/build/source && strip -o /c/linux-uml linux)
");
    }

    #[test]
    fn the_newest_source_is_what_the_meta_package_depends_on() {
        assert_eq!(newest("linux-source\n  Depends: linux-source-6.1\n").as_deref(), Some("linux-source-6.1"));
        assert_eq!(newest(""), None);
    }

    #[test]
    fn the_fragment_asks_for_virtual_time() {
        assert!(FRAGMENT.contains("CONFIG_UML_TIME_TRAVEL_SUPPORT=y\n"));
        assert!(FRAGMENT.contains("CONFIG_NET_ACT_MIRRED=y\n"));
    }
}

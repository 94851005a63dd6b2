//! Builds of templates that clients ask after: their status and their logs, while this bridge runs. What a build
//! has made is a template, which is kept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::limits::{
    BUILD_LOG_ENTRIES_MAX, BUILD_LOG_PAGE_MAX, BUILD_MESSAGE_CHARS_MAX, BUILDS_KNOWN_MAX,
};
use host::instant::{format, now_ms};
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};

/// Every build that is known, by its id without hyphens.
#[derive(Default)]
pub struct Builds(Mutex<Table>);

#[derive(Default)]
struct Table {
    builds: HashMap<String, Build>,
    /// The oldest first.
    order: VecDeque<String>,
}

/// One build.
pub struct Build {
    pub namespace: Name,
    pub template: Name,
    pub tags: Vec<String>,
    pub cpu_millis: Option<u32>,
    pub memory_mib: Option<u64>,
    status: Status,
    entries: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Status {
    Waiting,
    Building,
    Ready,
    Failed { message: String, step: Option<String> },
}

impl Build {
    pub fn new(
        (namespace, template): (Name, Name),
        tags: Vec<String>,
        (cpu_millis, memory_mib): (Option<u32>, Option<u64>),
    ) -> Self {
        let (status, entries) = (Status::Waiting, Vec::new());
        Self { namespace, template, tags, cpu_millis, memory_mib, status, entries }
    }
}

/// What a build is made into.
pub struct Target {
    pub template: Name,
    pub tags: Vec<String>,
    pub cpu_millis: Option<u32>,
    pub memory_mib: Option<u64>,
}

impl Builds {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a build that somebody is about to start.
    pub fn add(&self, id: String, build: Build) -> Result<(), Refusal> {
        let mut table = self.lock();
        if table.order.len() >= BUILDS_KNOWN_MAX {
            let is_idle = |id: &String| {
                table.builds.get(id).is_none_or(|build| build.status != Status::Building)
            };
            let Some(oldest) = table.order.iter().position(is_idle) else {
                let message =
                    format!("{BUILDS_KNOWN_MAX} builds are under way, which is the limit");
                return Err(Refusal::new(Code::LimitReached, message));
            };
            let oldest = table.order.remove(oldest);
            oldest.map(|id| table.builds.remove(&id));
        }
        table.order.push_back(id.clone());
        table.builds.insert(id, build);
        Ok(())
    }

    /// Takes a build that waits, to carry it out.
    pub fn begin(&self, id: &str, namespace: &Name, template: &Name) -> Result<Target, Refusal> {
        let mut table = self.lock();
        let build = table.builds.get_mut(id).filter(|build| build.is_of(namespace, template));
        let build = build.ok_or_else(|| missing(id))?;
        if build.status != Status::Waiting {
            return Err(Refusal::new(Code::Conflict, "this build was started already"));
        }
        build.status = Status::Building;
        let (tags, template) = (build.tags.clone(), build.template.clone());
        let Build { cpu_millis, memory_mib, .. } = *build;
        Ok(Target { template, tags, cpu_millis, memory_mib })
    }

    pub fn say(&self, id: &str, level: &str, message: &str, step: Option<&str>) {
        let mut table = self.lock();
        let Some(build) = table.builds.get_mut(id) else { return };
        let text: String = match build.entries.len() {
            len if len < BUILD_LOG_ENTRIES_MAX => {
                message.chars().take(BUILD_MESSAGE_CHARS_MAX).collect()
            }
            BUILD_LOG_ENTRIES_MAX => "the rest of this log is left out".to_owned(),
            _ => return,
        };
        let mut entry = json!({ "timestamp": format(now_ms()), "message": text, "level": level });
        if let Some(step) = step {
            entry["step"] = step.into();
        }
        build.entries.push(entry);
    }

    pub fn end(&self, id: &str, failed: Option<(String, Option<String>)>) {
        if let Some(build) = self.lock().builds.get_mut(id) {
            build.status = match failed {
                None => Status::Ready,
                Some((message, step)) => Status::Failed { message, step },
            };
        }
    }

    /// The answer to who asks after a build.
    pub fn status(
        &self,
        (id, shown): (&str, &str),
        namespace: &Name,
        template: &Name,
        (offset, limit): (usize, usize),
    ) -> Result<Value, Refusal> {
        let table = self.lock();
        let build = table.builds.get(id).filter(|build| build.is_of(namespace, template));
        let build = build.ok_or_else(|| missing(shown))?;
        let limit = limit.min(BUILD_LOG_PAGE_MAX);
        let entries: Vec<_> = build.entries.iter().skip(offset).take(limit).cloned().collect();
        let word = match &build.status {
            Status::Waiting => "waiting",
            Status::Building => "building",
            Status::Ready => "ready",
            Status::Failed { .. } => "error",
        };
        let mut answer = json!({
            "templateID": build.template, "buildID": shown, "status": word, "logs": [], "logEntries": entries,
        });
        if let Status::Failed { message, step } = &build.status {
            answer["reason"] = json!({ "message": message });
            if let Some(step) = step {
                answer["reason"]["step"] = step.as_str().into();
            }
        }
        Ok(answer)
    }
}

impl Build {
    fn is_of(&self, namespace: &Name, template: &Name) -> bool {
        self.namespace == *namespace && self.template == *template
    }
}

fn missing(id: &str) -> Refusal {
    let shown: String = id.chars().take(64).collect();
    Refusal::not_found(format!(
        "there is no build {shown:?}, or this server was started again since"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> Build {
        let names = ("ci".parse().unwrap(), "app".parse().unwrap());
        Build::new(names, vec!["default".to_owned()], (None, None))
    }

    #[test]
    fn a_build_is_started_once_and_its_log_is_read_by_pages() {
        let (builds, (namespace, template)) =
            (Builds::default(), ("ci".parse().unwrap(), "app".parse().unwrap()));
        builds.add("a".to_owned(), build()).unwrap();
        let other = "other".parse().unwrap();
        assert!(builds.begin("a", &other, &template).is_err());
        builds.begin("a", &namespace, &template).unwrap();
        assert_eq!(builds.begin("a", &namespace, &template).err().unwrap().code, Code::Conflict);
        for number in 0..BUILD_LOG_ENTRIES_MAX + 5 {
            builds.say("a", "info", &number.to_string(), None);
        }
        builds.end("a", Some(("no".to_owned(), Some("2".to_owned()))));
        let page =
            |offset| builds.status(("a", "a"), &namespace, &template, (offset, 1000)).unwrap();
        assert_eq!(page(0)["logEntries"].as_array().unwrap().len(), BUILD_LOG_PAGE_MAX);
        assert_eq!(page(0)["reason"], json!({ "message": "no", "step": "2" }));
        let last = page(BUILD_LOG_ENTRIES_MAX);
        assert_eq!(last["logEntries"].as_array().unwrap().len(), 1, "{last}");
        assert_eq!(page(BUILD_LOG_ENTRIES_MAX + 1)["logEntries"], json!([]));
        assert!(builds.status(("a", "a"), &other, &template, (0, 1)).is_err());
    }

    #[test]
    fn the_oldest_build_that_is_not_under_way_makes_room() {
        let builds = Builds::default();
        let (namespace, template) = ("ci".parse().unwrap(), "app".parse().unwrap());
        for number in 0..=BUILDS_KNOWN_MAX {
            builds.add(number.to_string(), build()).unwrap();
            if number == 0 {
                builds.begin("0", &namespace, &template).unwrap();
            }
        }
        assert!(builds.status(("0", "0"), &namespace, &template, (0, 1)).is_ok());
        assert!(builds.status(("1", "1"), &namespace, &template, (0, 1)).is_err());
    }
}

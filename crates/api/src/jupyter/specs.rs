//! The kernels that there are: one for each language of contexts, in Jupyter's words.

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::body::json_response;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use agent_client::guest::contexts::language::{BASH, Language, NODE, PYTHON};
use sandbox::refusal::Refusal;

/// The version of the protocol of messages.
pub const PROTOCOL: &str = "5.3";

/// A kernel as clients choose it.
#[derive(Debug)]
pub struct KernelSpec {
    pub name: &'static str,
    pub language: Language,
    mime: &'static str,
    /// The names by which viewers find their rules for colours.
    lexer: &'static str,
    mode: &'static str,
}

static ALL: &[KernelSpec] = &[
    KernelSpec {
        name: "python3",
        language: PYTHON,
        mime: "text/x-python",
        lexer: "ipython3",
        mode: PYTHON.name,
    },
    KernelSpec {
        name: "javascript",
        language: NODE,
        mime: "text/javascript",
        lexer: "javascript",
        mode: "javascript",
    },
    KernelSpec {
        name: BASH.name,
        language: BASH,
        mime: "text/x-sh",
        lexer: BASH.name,
        mode: "shell",
    },
];

impl KernelSpec {
    /// The kernel of a name; the first if there is none.
    pub fn named(name: Option<&str>) -> Result<&'static Self, Refusal> {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(&ALL[0]) };
        ALL.iter().find(|spec| spec.name == name).ok_or_else(|| {
            let names: Vec<_> = ALL.iter().map(|spec| spec.name).collect();
            let message = format!("there is no kernel {name:?}; there are {}", names.join(", "));
            Refusal::not_found(message)
        })
    }

    fn shown(&self) -> Value {
        json!({
            "name": self.name,
            "spec": {
                // Required by the form; nothing starts it.
                "argv": [],
                "display_name": format!("{} (Burrow)", self.language.title),
                "language": self.lexer_name(),
                "interrupt_mode": "message",
                "env": {},
                "metadata": {},
            },
            "resources": {},
        })
    }

    /// What notebooks call the language.
    fn lexer_name(&self) -> &'static str {
        if self.language.name == NODE.name { self.mode } else { self.language.name }
    }

    /// The answer to `kernel_info_request`.
    pub fn info(&self, version: &str) -> Value {
        let ending = self.language.endings.first().copied().unwrap_or_default();
        json!({
            "status": "ok",
            "protocol_version": PROTOCOL,
            "implementation": "burrow",
            "implementation_version": env!("CARGO_PKG_VERSION"),
            "language_info": {
                "name": self.lexer_name(),
                "version": version,
                "mimetype": self.mime,
                "file_extension": format!(".{ending}"),
                "pygments_lexer": self.lexer,
                "codemirror_mode": self.mode,
                "nbconvert_exporter": if self.language == PYTHON { PYTHON.name } else { "script" },
            },
            "banner": format!("{} {version} in a sandbox of Burrow", self.language.title),
            "help_links": [],
        })
    }
}

pub fn operations() -> Vec<Operation> {
    let (all, one) = ("/api/kernelspecs", "/api/kernelspecs/{spec}");
    [
        operation(Method::GET, all, "jupyter_kernelspecs", "List kinds of kernels.", list),
        operation(Method::GET, one, "jupyter_kernelspec", "One kind of kernel.", get),
    ]
    .to_vec()
}

async fn list(_: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let all: Map<_, _> = ALL.iter().map(|spec| (spec.name.to_owned(), spec.shown())).collect();
    let list = json!({ "default": ALL[0].name, "kernelspecs": all });
    Ok(Raw(json_response(StatusCode::OK, &list)))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let name: String = call.parameter("spec")?;
    Ok(Raw(json_response(StatusCode::OK, &KernelSpec::named(Some(&name))?.shown())))
}

#[cfg(test)]
mod tests {
    use agent_client::guest::contexts::language;

    use super::ALL;

    #[test]
    fn each_language_has_a_kernel() {
        assert!(ALL.iter().map(|spec| spec.language.name).eq(language::names()));
    }
}

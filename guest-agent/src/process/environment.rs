//! The environment that a program starts with, and where its name is looked up.
//!
//! Only `process` uses it; it is pure, except for its input.

use std::ffi::CString;

use protocol::{Fault, FaultCode, Text};

use super::user::User;

/// The variable by which a process is known to belong to a session, wherever it has gone.
pub const SESSION_VARIABLE: &str = "BURROW_SESSION";

/// The default search path: the order of Debian and docker.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Places that are tried for one name; a `PATH` with more is cut.
const CANDIDATES_MAX: usize = 64;

/// Refuses invalid names of variables.
pub fn check_names(variables: &[(Text, Text)]) -> Result<(), Fault> {
    match variables.iter().find(|(name, _)| !is_name(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("{name:?} is not a name of an environment variable");
            Err(Fault::new(FaultCode::Invalid, message))
        }
    }
}

fn is_name(name: &Text) -> bool {
    !name.is_empty() && !name.as_bytes().contains(&b'=')
}

/// The variables of one program, each name once.
#[derive(Debug)]
pub struct Environment {
    variables: Vec<(Text, Text)>,
}

impl Environment {
    /// Adds missing variables except `HOME`, which the caller adds with [`Self::has_home`]: whether
    /// the account's directory is there is a question to a file system. If a name occurs twice the
    /// later value counts, as in a shell.
    pub fn complete(given: Vec<(Text, Text)>, user: &User, session: &str) -> Self {
        let mut environment = Self { variables: Vec::with_capacity(given.len() + 6) };
        for (name, value) in given {
            environment.set(name, value);
        }
        environment.default("PATH", DEFAULT_PATH);
        environment.default("USER", &user.name);
        environment.default("LOGNAME", &user.name);
        environment.default("SHELL", &user.shell);
        environment.set(SESSION_VARIABLE.into(), session.into());
        environment
    }

    /// Whether the caller gave a home directory.
    pub fn has_home(&self) -> bool {
        self.get("HOME").is_some()
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        let known = self.variables.iter().find(|(known, _)| known.as_bytes() == name.as_bytes());
        known.map(|(_, value)| value.as_bytes())
    }

    fn set(&mut self, name: Text, value: Text) {
        match self.variables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.variables.push((name, value)),
        }
    }

    fn default(&mut self, name: &str, value: &str) {
        if self.get(name).is_none() {
            self.variables.push((name.into(), value.into()));
        }
    }

    /// The candidates for `program`: itself if it has a slash, else its path in each directory of
    /// `PATH`. An empty element, which shells read as the current directory, is skipped: nobody
    /// means it. `None` if there is a zero byte in it.
    pub fn candidates(&self, program: &Text) -> Option<Vec<CString>> {
        let program = program.as_bytes();
        if program.contains(&b'/') {
            return CString::new(program).ok().map(|path| vec![path]);
        }
        let path = self.get("PATH").unwrap_or(DEFAULT_PATH.as_bytes());
        path.split(|byte| *byte == b':')
            .filter(|directory| !directory.is_empty())
            .take(CANDIDATES_MAX)
            .map(|directory| CString::new([directory, b"/", program].concat()).ok())
            .collect()
    }

    /// The form that execve takes. Fails with the name of a variable that cannot be given.
    pub fn into_c_strings(self) -> Result<Vec<CString>, Text> {
        self.variables
            .into_iter()
            .map(|(name, value)| {
                if !is_name(&name) {
                    return Err(name);
                }
                let whole = [name.as_bytes(), b"=", value.as_bytes()].concat();
                CString::new(whole).map_err(|_| name)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User {
            identity: None,
            name: "ann".into(),
            home: "/home/ann".into(),
            shell: "/bin/sh".into(),
        }
    }

    fn complete(given: &[(&str, &str)]) -> Environment {
        let given = given.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        Environment::complete(given, &user(), "s1")
    }

    #[test]
    fn given_variables_are_kept_and_missing_ones_are_added() {
        let environment = complete(&[("HOME", "/srv"), ("A", "1"), ("A", "2")]);
        assert!(environment.has_home() && !complete(&[]).has_home());
        assert_eq!(environment.get("HOME"), Some(&b"/srv"[..]));
        assert_eq!(environment.get("A"), Some(&b"2"[..]));
        assert_eq!(environment.get("USER"), Some(&b"ann"[..]));
        assert_eq!(environment.get("PATH"), Some(DEFAULT_PATH.as_bytes()));
        assert_eq!(environment.get(SESSION_VARIABLE), Some(&b"s1"[..]));
    }

    #[test]
    fn a_program_cannot_pose_as_another_session() {
        let environment = complete(&[(SESSION_VARIABLE, "other")]);
        assert_eq!(environment.get(SESSION_VARIABLE), Some(&b"s1"[..]));
    }

    #[test]
    fn names_are_searched_and_paths_are_not() {
        let environment = complete(&[("PATH", "/a::/b")]);
        assert_eq!(environment.candidates(&"x".into()), Some(vec![c"/a/x".into(), c"/b/x".into()]));
        assert_eq!(environment.candidates(&"./x".into()), Some(vec![c"./x".into()]));
        assert_eq!(environment.candidates(&"x\0y".into()), None);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        assert_eq!(complete(&[("A=B", "1")]).into_c_strings(), Err("A=B".into()));
        assert_eq!(complete(&[("A", "\0")]).into_c_strings(), Err("A".into()));
    }
}

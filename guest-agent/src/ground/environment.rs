//! The base environment of the sandbox's programs; each start adds its own variables. An adoption
//! extends it.

use std::cell::RefCell;

use protocol::{Fault, FaultCode, Text, limits};

/// See the module's description. Each name is in it once.
pub struct SandboxEnvironment {
    variables: RefCell<Vec<(Text, Text)>>,
}

impl SandboxEnvironment {
    pub fn new(variables: &[(String, String)]) -> Self {
        let variables = variables.iter();
        let variables =
            variables.map(|(name, value)| (Text::from(&**name), Text::from(&**value))).collect();
        Self { variables: RefCell::new(variables) }
    }

    /// The sandbox's variables, followed by those that a client `given` for one program. Where a name
    /// is given twice, the later value counts.
    pub fn with(&self, given: &[(Text, Text)]) -> Vec<(Text, Text)> {
        self.variables.borrow().iter().chain(given).cloned().collect()
    }

    /// Sets variables for all later programs. Returns whether that changed anything.
    pub fn extend(&self, given: Vec<(Text, Text)>) -> bool {
        let mut variables = self.variables.borrow_mut();
        let before = variables.clone();
        for (name, value) in given {
            match variables.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => variables.push((name, value)),
            }
        }
        *variables != before
    }

    /// Refuses variables that would leave no room for those of a start.
    pub fn check_room(&self, given: &[(Text, Text)]) -> Result<(), Fault> {
        let variables = self.variables.borrow();
        let sizes = variables
            .iter()
            .chain(given)
            .map(|(name, value)| name.as_bytes().len() + value.as_bytes().len());
        if sizes.sum::<usize>() > limits::ARGUMENTS_BYTES_MAX {
            return Err(Fault::new(FaultCode::Limit, "the sandbox's environment is too large"));
        }
        Ok(())
    }
}

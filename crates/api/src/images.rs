//! What clients may name as an image: what the configuration lists, what this
//! host's store has, and, for those who may do everything, any directory of the host. A directory shows what is in it to all code in the box, so
//! the choice is the operator's.

use std::path::Path;

use super::Api;
use super::caller::Caller;
use super::problem::{Code, Problem};
use access::keys::Access;
use image::{Pull, Puller};
use machine::MachineKind;
use sandbox::root_of;

/// Names that are shown to somebody who has asked for another.
const NAMES_SHOWN_MAX: usize = 16;
/// The longest name that is repeated to whoever asked for it.
const NAME_CHARS_SHOWN: usize = 64;

impl Api {
    /// When an image is pulled for this caller: as the operator has set it, or less. Who may do
    /// everything may have more.
    pub(super) fn pull_of(&self, caller: &Caller, asked: Option<Pull>) -> Result<Pull, Problem> {
        let puller = self.registry().puller();
        let usual = puller.map(Puller::usual).unwrap_or_default();
        let Some(asked) = asked else { return Ok(usual) };
        if asked > Pull::Never && puller.is_none() {
            return Err(Problem::new(Code::Unsupported, "pull: this bridge does not pull images"));
        }
        if asked > usual && !caller.may(Access::Admin) {
            let message = format!("pull: only an admin key may ask for {asked}");
            return Err(Problem::new(Code::Forbidden, message)
                .hint(format!("this server has image_policy.pull = {usual}")));
        }
        Ok(asked)
    }

    /// The root that an image stands for: a directory of the host, for a virtual machine a file or an
    /// image of the kit, and for either an image of the store by what it was asked as.
    pub(super) fn root_of(
        &self,
        caller: &Caller,
        machine: MachineKind,
        image: &str,
        pull: Pull,
    ) -> Result<String, Problem> {
        let images = &self.defaults().images;
        if let Some(root) = root_of(images, machine, image) {
            return Ok(root);
        }
        let is_directory = Path::new(image).is_absolute();
        let is_stored = || {
            let images = self.registry().images();
            images.is_some_and(|images| images.find(image).is_ok())
        };
        // What is pulled need not be here; whether it may be, the policy says.
        if !is_directory && (pull != Pull::Never || is_stored()) {
            return Ok(image.to_owned());
        }
        if is_directory && caller.may(Access::Admin) {
            // The machine says what is wrong with one that is not there.
            return Ok(image.to_owned());
        }
        let shown: String = image.chars().take(NAME_CHARS_SHOWN).collect();
        if is_directory {
            let message = format!("image: only an admin key may name the directory {shown:?}");
            return Err(Problem::new(Code::Forbidden, message)
                .hint("name an image from the server's configuration"));
        }
        let names: Vec<_> = images.keys().take(NAMES_SHOWN_MAX).map(String::as_str).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message = format!("image: this server has no image {shown:?}");
        Err(Problem::new(Code::Unsupported, message)
            .hint(format!("the server's configuration has these images: {names}")))
    }
}

/// The workspace that a caller may have under a name. Directories of the host are for those who
/// may do anything here.
pub(super) fn workspace_of(caller: &Caller, name: String) -> Result<String, Problem> {
    if !workspace::is_path(&name) || caller.may(Access::Admin) {
        return Ok(name);
    }
    let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
    let message = format!("workspace: only an admin key may name the directory {shown:?}");
    Err(Problem::new(Code::Forbidden, message)
        .hint("name a workspace from the server's configuration"))
}

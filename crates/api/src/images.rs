//! The names that clients may use for an image: the configuration's, those of this host's store, and, for
//! clients who may do everything, any directory of the host. A directory exposes its content to all code in
//! the sandbox, so the operator decides.

use std::path::Path;

use super::Api;
use super::caller::Caller;
use access::keys::Access;
use image::{Pull, Puller};
use machine::MachineKind;
use sandbox::refusal::{Code, Refusal};
use sandbox::root_of;

/// Names that are listed when another was asked for.
const NAMES_SHOWN_MAX: usize = 16;
/// The longest name that is repeated to the client.
const NAME_CHARS_SHOWN: usize = 64;

impl Api {
    /// When an image is pulled for this caller: as the operator has set it, or less. Callers who may do
    /// everything may have more.
    pub(super) fn pull_of(
        &self,
        caller: &Caller,
        requested: Option<Pull>,
    ) -> Result<Pull, Refusal> {
        let puller = self.registry().puller();
        let usual = puller.map(Puller::usual).unwrap_or_default();
        let Some(requested) = requested else { return Ok(usual) };
        if requested > Pull::Never && puller.is_none() {
            return Err(Refusal::new(Code::Unsupported, "pull: this bridge does not pull images"));
        }
        if requested > usual && !caller.may(Access::Admin) {
            let message = format!("pull: only an admin key may ask for {requested}");
            return Err(Refusal::new(Code::Forbidden, message)
                .hint(format!("this server has image_policy.pull = {usual}")));
        }
        Ok(requested)
    }

    /// The root of an image: a directory of the host, for a virtual machine a file or an
    /// image of the kit, and for either an image of the store by what it was asked as.
    pub(super) fn root_of(
        &self,
        caller: &Caller,
        machine: MachineKind,
        image: &str,
        pull: Pull,
    ) -> Result<String, Refusal> {
        let images = self.images();
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
            return Err(Refusal::new(Code::Forbidden, message)
                .hint("name an image from the server's configuration"));
        }
        let names: Vec<_> = images.keys().take(NAMES_SHOWN_MAX).map(String::as_str).collect();
        let configured = if names.is_empty() {
            String::new()
        } else {
            format!("; the server's configuration has these: {}", names.join(", "))
        };
        let message = format!("image: this server has no image {shown:?}");
        Err(Refusal::new(Code::Unsupported, message).hint(format!(
            "its operator brings it with `host-bridge image pull {shown}`; without an image, the sandbox \
             has the server's usual root{configured}"
        )))
    }
}

/// The workspace that a caller may have under a name. Directories of the host are for those who
/// may do anything here.
pub(super) fn workspace_of(caller: &Caller, name: String) -> Result<String, Refusal> {
    if !workspace::is_path(&name) || caller.may(Access::Admin) {
        return Ok(name);
    }
    let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
    let message = format!("workspace: only an admin key may name the directory {shown:?}");
    Err(Refusal::new(Code::Forbidden, message)
        .hint("name a workspace from the server's configuration"))
}

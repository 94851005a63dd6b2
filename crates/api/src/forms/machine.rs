//! A kind of machine in requests and answers. The words and their descriptions come from the table
//! of kinds.

use std::borrow::Cow;

use machine::MachineKind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The kind of machine that a sandbox runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Machine(pub MachineKind);

impl JsonSchema for Machine {
    fn schema_name() -> Cow<'static, str> {
        "Machine".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds = MachineKind::ALL.map(MachineKind::profile);
        let one_of = kinds
            .map(|kind| json!({ "description": kind.about, "type": "string", "const": kind.name }));
        json_schema!({ "description": "The kind of machine that a sandbox runs in.", "oneOf": one_of })
    }
}

impl From<MachineKind> for Machine {
    fn from(kind: MachineKind) -> Self {
        Self(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_each_kind_with_its_description() {
        let schema = schemars::schema_for!(Machine).to_value();
        let kinds = schema["oneOf"].as_array().unwrap();
        assert_eq!(kinds.len(), MachineKind::ALL.len());
        let cloud_hypervisor = json!({
            "description": "A virtual machine of Cloud Hypervisor.",
            "type": "string",
            "const": "cloud-hypervisor",
        });
        assert!(kinds.contains(&cloud_hypervisor), "{kinds:?}");
    }
}

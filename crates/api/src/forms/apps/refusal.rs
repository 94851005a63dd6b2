//! The refusal of an app, with how its program ended.

use serde_json::json;

use crate::forms::exit::Exit;
use sandbox::refusal::Refusal;
use services::app::AppError;

pub fn refusal(error: AppError) -> Refusal {
    let refusal = Refusal::from(&error);
    match error {
        AppError::Failed { record, .. } => refusal.details(json!({ "exit": Exit::from(*record) })),
        _ => refusal,
    }
}

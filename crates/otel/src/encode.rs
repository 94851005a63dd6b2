//! Requests of OTLP as JSON, as the protocol's own definitions have them: names in camel case, ids as
//! hexadecimal digits, numbers of 64 bits as texts, enumerations as numbers. Pure.

use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};

use super::figures::{Family, Kind, Number, Point};
use super::record::LogRecord;
use super::span::EndedSpan;
use super::value::{Attributes, Key, Value};

/// The name of what makes all of it.
const SCOPE: &str = "burrow";
/// Sums go on from request to request.
const CUMULATIVE: u8 = 2;
/// The outcome of a span that has failed.
const STATUS_ERROR: u8 = 2;
/// The flags of a span say whether its parent is another program's, and that it is.
const FLAG_KNOWS_REMOTE: u32 = 0x100;
const FLAG_IS_REMOTE: u32 = 0x200;

/// The body of a request for spans.
pub fn traces(resource: &Attributes, spans: &[EndedSpan]) -> Vec<u8> {
    let spans = spans.iter().map(SpanJson::of).collect();
    request(["resourceSpans", "scopeSpans", "spans"], resource, spans)
}

/// The body of a request for records of the log.
pub fn logs(resource: &Attributes, records: &[LogRecord]) -> Vec<u8> {
    let records = records.iter().map(RecordJson::of).collect();
    request(["resourceLogs", "scopeLogs", "logRecords"], resource, records)
}

/// The body of a request for figures that were read at one moment.
pub fn metrics(
    resource: &Attributes,
    families: &[Family],
    (began_ns, now_ns): (u64, u64),
) -> Vec<u8> {
    let metrics = families.iter().map(|family| MetricJson::of(family, began_ns, now_ns)).collect();
    request(["resourceMetrics", "scopeMetrics", "metrics"], resource, metrics)
}

/// The three levels that all requests have: of a resource, of a scope, and of what they carry.
fn request<T: Serialize>(
    names: [&'static str; 3],
    resource: &Attributes,
    items: Vec<T>,
) -> Vec<u8> {
    let [resources, scopes, own] = names;
    let attributes = Resource { attributes: List(resource) };
    let scope = Level { about: Some(("scope", Scope::OWN)), name: own, items };
    let resource =
        Level { about: Some(("resource", attributes)), name: scopes, items: vec![scope] };
    let request = Level { about: None::<(_, ())>, name: resources, items: vec![resource] };
    serde_json::to_vec(&request).expect("texts and numbers are always JSON")
}

/// A list under a name of its own, and what it is of.
struct Level<A, T> {
    about: Option<(&'static str, A)>,
    name: &'static str,
    items: Vec<T>,
}

impl<A: Serialize, T: Serialize> Serialize for Level<A, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some((name, about)) = &self.about {
            map.serialize_entry(name, about)?;
        }
        map.serialize_entry(self.name, &self.items)?;
        map.end()
    }
}

/// What a collector says of a request that it has taken: how much of it it has not, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialSuccess {
    pub rejected: u64,
    pub message: String,
}

/// Parses the answer to a request. One that cannot be understood says nothing.
pub fn parse_answer(body: &[u8]) -> PartialSuccess {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Answer {
        partial_success: Option<Partial>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Partial {
        rejected_spans: Count,
        rejected_log_records: Count,
        rejected_data_points: Count,
        error_message: String,
    }
    /// Numbers of 64 bits are texts, and some write them as numbers.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Count {
        Number(u64),
        Text(String),
    }
    impl Default for Count {
        fn default() -> Self {
            Self::Number(0)
        }
    }
    impl Count {
        fn number(&self) -> u64 {
            match self {
                Self::Number(number) => *number,
                Self::Text(text) => text.parse().unwrap_or_default(),
            }
        }
    }
    let answer: Answer = serde_json::from_slice(body).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    let counts =
        [partial.rejected_spans, partial.rejected_log_records, partial.rejected_data_points];
    let rejected = counts.iter().map(Count::number).fold(0, u64::saturating_add);
    PartialSuccess { rejected, message: partial.error_message }
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: List<'a>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

impl Scope {
    const OWN: Self = Self { name: SCOPE, version: env!("CARGO_PKG_VERSION") };
}

/// A number of 64 bits.
struct Wide(u64);

impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Attributes as a list of keys and values.
struct List<'a>(&'a Attributes);

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, value)| Entry { key, value: Any(value) }))
    }
}

#[derive(Serialize)]
struct Entry<'a> {
    key: &'a Key,
    value: Any<'a>,
}

struct Any<'a>(&'a Value);

#[derive(Serialize)]
struct Values<T> {
    values: Vec<T>,
}

impl Serialize for Any<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            Value::Text(text) => map.serialize_entry("stringValue", text)?,
            Value::Whole(number) => map.serialize_entry("intValue", &number.to_string())?,
            Value::Real(number) => map.serialize_entry("doubleValue", &Real(*number))?,
            Value::Truth(truth) => map.serialize_entry("boolValue", truth)?,
            Value::List(values) => {
                let values = values.iter().map(Any).collect();
                map.serialize_entry("arrayValue", &Values { values })?;
            }
            Value::Table(entries) => {
                let one = |(key, value): &'_ (Key, Value)| -> serde_json::Value {
                    serde_json::json!({ "key": key, "value": Any(value) })
                };
                let values = entries.iter().map(one).collect::<Vec<_>>();
                map.serialize_entry("kvlistValue", &Values { values })?;
            }
        }
        map.end()
    }
}

/// A real number. JSON has no names for those that are none; the protocol's definitions do.
struct Real(f64);

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            number if number.is_finite() => serializer.serialize_f64(number),
            number if number.is_nan() => serializer.serialize_str("NaN"),
            number if number > 0.0 => serializer.serialize_str("Infinity"),
            _ => serializer.serialize_str("-Infinity"),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanJson<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    flags: u32,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: Wide,
    end_time_unix_nano: Wide,
    attributes: List<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<StatusJson<'a>>,
}

#[derive(Serialize)]
struct StatusJson<'a> {
    code: u8,
    message: &'a str,
}

impl<'a> SpanJson<'a> {
    fn of(span: &'a EndedSpan) -> Self {
        let is_remote = span.parent.is_some_and(|parent| parent.is_remote);
        let remote = if is_remote { FLAG_IS_REMOTE } else { 0 };
        let failure = span.failure.as_deref();
        Self {
            trace_id: span.context.trace.to_string(),
            span_id: span.context.span.to_string(),
            trace_state: span.context.state(),
            parent_span_id: span.parent.map(|parent| parent.span.to_string()),
            flags: u32::from(span.context.flags) | FLAG_KNOWS_REMOTE | remote,
            name: &span.name,
            kind: span.kind as u8,
            start_time_unix_nano: Wide(span.begun_ns),
            end_time_unix_nano: Wide(span.ended_ns),
            attributes: List(&span.attributes),
            status: failure.map(|message| StatusJson { code: STATUS_ERROR, message }),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordJson<'a> {
    time_unix_nano: Wide,
    observed_time_unix_nano: Wide,
    severity_number: u8,
    severity_text: &'static str,
    body: TextJson<'a>,
    attributes: List<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TextJson<'a> {
    string_value: &'a str,
}

impl<'a> RecordJson<'a> {
    fn of(record: &'a LogRecord) -> Self {
        Self {
            time_unix_nano: Wide(record.at_ns),
            observed_time_unix_nano: Wide(record.at_ns),
            severity_number: record.severity as u8,
            severity_text: record.severity.name(),
            body: TextJson { string_value: &record.body },
            attributes: List(&record.attributes),
            trace_id: record.context.as_ref().map(|place| place.trace.as_str()),
            span_id: record.context.as_ref().map(|place| place.span.as_str()),
            event_name: record.event.as_deref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricJson<'a> {
    name: &'static str,
    description: &'static str,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    gauge: Option<DataJson<NumberJson<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<DataJson<NumberJson<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    histogram: Option<DataJson<SpreadJson<'a>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DataJson<T> {
    data_points: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregation_temporality: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_monotonic: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NumberJson<'a> {
    attributes: LabelsJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time_unix_nano: Option<Wide>,
    time_unix_nano: Wide,
    as_double: Real,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpreadJson<'a> {
    attributes: LabelsJson<'a>,
    start_time_unix_nano: Wide,
    time_unix_nano: Wide,
    count: Wide,
    sum: Real,
    bucket_counts: Vec<Wide>,
    explicit_bounds: &'a [f64],
}

/// The labels of a point as attributes.
struct LabelsJson<'a>(&'a [(String, String)]);

impl Serialize for LabelsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Label<'a> {
            key: &'a str,
            value: TextJson<'a>,
        }
        let one = |(key, value): &'_ (String, String)| -> serde_json::Value {
            serde_json::json!(Label { key, value: TextJson { string_value: value } })
        };
        serializer.collect_seq(self.0.iter().map(one))
    }
}

impl<'a> MetricJson<'a> {
    fn of(family: &'a Family, began_ns: u64, now_ns: u64) -> Self {
        let start = |kind| (kind == Kind::Counter).then_some(Wide(began_ns));
        let number = |point: &'a Point| match &point.value {
            Number::Plain(value) => Some(NumberJson {
                attributes: LabelsJson(&point.labels),
                start_time_unix_nano: start(family.kind),
                time_unix_nano: Wide(now_ns),
                as_double: Real(*value),
            }),
            Number::Spread(_) => None,
        };
        let spread = |point: &'a Point| match &point.value {
            Number::Spread(spread) => Some(SpreadJson {
                attributes: LabelsJson(&point.labels),
                start_time_unix_nano: Wide(began_ns),
                time_unix_nano: Wide(now_ns),
                count: Wide(spread.counts.iter().sum()),
                sum: Real(spread.sum),
                bucket_counts: spread.counts.iter().map(|count| Wide(*count)).collect(),
                explicit_bounds: &spread.bounds,
            }),
            Number::Plain(_) => None,
        };
        let mut metric = Self {
            name: family.name,
            description: family.about,
            unit: unit_of(family.name),
            gauge: None,
            sum: None,
            histogram: None,
        };
        let points = &family.points;
        match family.kind {
            Kind::Gauge => {
                let data_points = points.iter().filter_map(number).collect();
                let (aggregation_temporality, is_monotonic) = (None, None);
                metric.gauge =
                    Some(DataJson { data_points, aggregation_temporality, is_monotonic });
            }
            Kind::Counter | Kind::OlderCounter => {
                let data_points = points.iter().filter_map(number).collect();
                let (aggregation_temporality, is_monotonic) = (Some(CUMULATIVE), Some(true));
                metric.sum = Some(DataJson { data_points, aggregation_temporality, is_monotonic });
            }
            Kind::Histogram => {
                let data_points = points.iter().filter_map(spread).collect();
                let (aggregation_temporality, is_monotonic) = (Some(CUMULATIVE), None);
                metric.histogram =
                    Some(DataJson { data_points, aggregation_temporality, is_monotonic });
            }
        }
        metric
    }
}

/// The unit that a name of Prometheus ends with.
fn unit_of(name: &str) -> &'static str {
    let name = name.trim_end_matches("_total").trim_end_matches("_max").trim_end_matches("_peak");
    if name.ends_with("_seconds") {
        "s"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        ""
    }
}

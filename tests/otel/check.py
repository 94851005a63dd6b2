"""Parses requests of OTLP by the protocol's own definitions, and refuses every field that they do not have.

Reads lines of JSON, `{"signal": "traces", "body": …}`, and prints how many of each signal there were.
The definitions map bytes to base64, and the protocol writes ids as hexadecimal digits: those are converted
first, and must be of the right length.
"""

import base64
import collections
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

REQUESTS = {
    "traces": traces.ExportTraceServiceRequest,
    "metrics": metrics.ExportMetricsServiceRequest,
    "logs": logs.ExportLogsServiceRequest,
}
ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
# Numbers of 64 bits are texts.
WIDE = {
    "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "observedTimeUnixNano", "intValue", "count",
}


def converted(value, key=None):
    if isinstance(value, dict):
        return {name: converted(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [converted(inner, key) for inner in value]
    if key in ID_BYTES:
        assert value == value.lower(), value
        raw = bytes.fromhex(value)
        assert len(raw) == ID_BYTES[key] and any(raw), (key, value)
        return base64.b64encode(raw).decode()
    if key in WIDE or key == "bucketCounts":
        assert isinstance(value, str), (key, value)
    return value


def check_points(request):
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            names = [metric.name for metric in scope.metrics]
            assert len(set(names)) == len(names), "a metric is in a request once"
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                assert kind in ("gauge", "sum", "histogram"), metric
                for point in getattr(metric, kind).data_points:
                    keys = [attribute.key for attribute in point.attributes]
                    assert len(set(keys)) == len(keys), metric.name
                    if kind == "histogram":
                        assert sum(point.bucket_counts) == point.count, metric.name
                        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1


def main():
    counts = collections.Counter()
    for line in sys.stdin:
        sent = json.loads(line)
        request = REQUESTS[sent["signal"]]()
        json_format.ParseDict(converted(sent["body"]), request, ignore_unknown_fields=False)
        if sent["signal"] == "metrics":
            check_points(request)
        if sent["signal"] == "traces":
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        assert span.end_time_unix_nano >= span.start_time_unix_nano, span
                        assert span.name and span.kind, span
        counts[sent["signal"]] += 1
    print(json.dumps(counts))


main()

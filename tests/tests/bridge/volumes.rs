//! Volumes beside caps and crashes, and over JSON-RPC, whose sandboxes have them too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;

use serde_json::{Value, json};
use tests::Burrow;
use tests::http::{Answer, Client};
use tests::server::Server;
use tests::small_disk::SmallDisk;

const MIB: usize = 1024 * 1024;

/// A volume that a client has made.
struct Volume {
    id: String,
    token: String,
}

fn create(client: &Client, name: &str) -> Volume {
    let made = client.post("/volumes", &json!({ "name": name })).expect(201).json();
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    Volume { id: text("volumeID"), token: text("token") }
}

impl Volume {
    fn send(&self, client: &Client, method: &str, call: &str, body: &[u8]) -> Answer {
        let authorization = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/octet-stream"),
        ];
        client.send(method, &format!("/volumecontent/{}/{call}", self.id), &headers, body)
    }

    fn write(&self, client: &Client, path: &str, body: &[u8]) -> Answer {
        self.send(client, "PUT", &format!("file?path={path}"), body)
    }

    fn read(&self, client: &Client, path: &str) -> Answer {
        self.send(client, "GET", &format!("file?path={path}"), &[])
    }
}

#[test]
fn a_cap_on_disk_refuses_uploads_and_mounts_of_a_full_volume() {
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    fs::write(&config, "[caps.per_namespace]\ndisk = \"1MiB\"\n").unwrap();
    let server = Server::start_in(burrow, &["--dev", "--config", config.to_str().unwrap()]);
    let client = Client::new(server.url());
    let volume = create(&client, "data");
    volume.write(&client, "/large", &vec![1; 2 * MIB]).expect(413);
    volume.send(&client, "GET", "path?path=/large", &[]).expect(404);
    volume.write(&client, "/fits", &vec![1; MIB]).expect(201);
    for _ in 0..2 {
        let refused = volume.write(&client, "/more", b"1").expect(429).json();
        assert_eq!(refused["code"], "cap_exceeded", "{refused}");
    }
    let ask = json!({ "templateID": "base", "volumeMounts": [{ "name": "data", "path": "/d" }] });
    client.post("/v2/sandboxes", &ask).expect(429);
    let shown = client.get("/v1/caps").expect(200).json();
    assert!(shown.to_string().contains("disk_bytes"), "{shown}");
    volume.send(&client, "DELETE", "path?path=/fits", &[]).expect(204);
}

#[test]
fn a_volume_survives_its_bridge_and_an_upload_that_was_cut_off_does_not() {
    let mut server = Server::dev();
    let client = Client::new(server.url());
    let volume = create(&client, "data");
    volume.write(&client, "/kept", b"kept").expect(201);
    let ask = json!({ "templateID": "base", "volumeMounts": [{ "name": "data", "path": "/d" }] });
    let made = client.post("/v2/sandboxes", &ask).expect(201).json();
    let sandbox = made["sandboxID"].as_str().unwrap().to_owned();

    server.kill_and_serve_again();
    let client = Client::new(server.url());
    assert_eq!(volume.read(&client, "/kept").expect(200).text(), "kept");
    volume.write(&client, "/later", b"later").expect(201);
    // The sandbox has gone on with it, and nobody removes it meanwhile.
    let found = client.get(&format!("/sandboxes/{sandbox}")).expect(200).json();
    assert_eq!(found["volumeMounts"], json!([{ "name": "data", "path": "/d" }]));
    let which = found["alias"].as_str().unwrap();
    let read = json!({ "argv": ["cat", "/d/kept", "/d/later"] });
    let ran = client.post(&format!("/v1/sandboxes/default/{which}/exec"), &read).expect(200);
    assert!(ran.text().contains("keptlater"), "{}", ran.text());
    client.delete(&format!("/volumes/{}", volume.id)).expect(409);
    client.delete(&format!("/sandboxes/{sandbox}")).expect(204);
    client.delete(&format!("/volumes/{}", volume.id)).expect(204);
    volume.read(&client, "/kept").expect(401);
}

#[test]
fn a_full_disk_refuses_volumes_and_uploads_with_the_reason_and_leaves_nothing_of_them() {
    let burrow = Burrow::new();
    let Some(disk) = SmallDisk::mount_or_skip(&burrow.state(), 2048) else { return };
    let server = Server::start_in(burrow, &["--dev"]);
    let client = Client::new(server.url());
    let volume = create(&client, "data");
    volume.write(&client, "/kept", b"kept").expect(201);
    let filler = disk.fill();
    for (path, name) in [("/volumes", "by-e2b"), ("/v1/volumes", "native")] {
        let refused = client.post(path, &json!({ "name": name })).expect(507).text();
        assert!(refused.contains("No space left on device"), "{path}: {refused}");
    }
    let refused = volume.write(&client, "/lost", &vec![1; MIB]).expect(507).text();
    assert!(refused.contains("No space left on device"), "{refused}");
    filler.remove();
    let listed = client.get("/v1/volumes").expect(200).text();
    assert!(!listed.contains("by-e2b") && !listed.contains("native"), "{listed}");
    volume.send(&client, "GET", "path?path=/lost", &[]).expect(404);
    assert_eq!(volume.read(&client, "/kept").expect(200).body, b"kept");
    for (path, name) in [("/volumes", "by-e2b"), ("/v1/volumes", "native")] {
        client.post(path, &json!({ "name": name })).expect(201);
    }
    volume.write(&client, "/lost", &vec![1; MIB]).expect(201);
    drop(server);
    drop(disk);
}

#[test]
fn json_rpc_mounts_volumes_by_name_and_no_directory_of_the_host() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let volume = create(&client, "data");
    volume.write(&client, "/f", b"from a volume").expect(201);
    let start = |volumes: Value| {
        let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start",
            "params": { "sandbox": "s", "config": { "volumes": volumes } } });
        client.post("/api/v1/rpc", &ask).expect(200).json()
    };
    for refused in [json!(["/etc:/d"]), json!(["none:/d"]), json!(["data"]), json!(["data:/proc"])]
    {
        let answer = start(refused);
        assert!(answer.get("error").is_some(), "{answer}");
    }
    let answer = start(json!({ "data": "/srv/d" }));
    assert!(answer.get("error").is_none(), "{answer}");
    let read = json!({ "argv": ["cat", "/srv/d/f"] });
    let ran = client.post("/v1/sandboxes/default/s/exec", &read).expect(200);
    assert!(ran.text().contains("from a volume"), "{}", ran.text());
}

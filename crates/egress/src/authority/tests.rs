use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

/// The error of a client that trusts this certificate, of a server that presents `shown`, when it wants
/// `wanted`.
async fn greet(believed: &Authority, server: TlsAcceptor, wanted: &str) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(believed.certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let (near, far) = tokio::io::duplex(4096);
    let serving = tokio::spawn(async move {
        let mut stream = server.accept(far).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    });
    let name = ServerName::try_from(wanted.to_owned()).unwrap();
    let mut stream = connector.connect(name, near).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    assert_eq!(text, "hello");
    serving.await.unwrap()
}

#[tokio::test]
async fn a_client_that_believes_it_takes_it_for_its_hosts_and_no_others() {
    let hosts = [host("api.example.org"), host("b.example.net")];
    let authority = Authority::open(None, &hosts).await.unwrap();
    for name in ["api.example.org", "b.example.net"] {
        let server = authority.server(&host(name)).unwrap();
        greet(&authority, server, name).await.unwrap();
    }
    let server = authority.server(&host("api.example.org")).unwrap();
    greet(&authority, server, "b.example.net").await.unwrap_err();
    // Its own name constraints bind it, whatever it signs.
    let server = authority.server(&host("bank.example.com")).unwrap();
    greet(&authority, server, "bank.example.com").await.unwrap_err();
    let other = Authority::open(None, &hosts).await.unwrap();
    let server = other.server(&host("api.example.org")).unwrap();
    greet(&authority, server, "api.example.org").await.unwrap_err();
}

#[tokio::test]
async fn clients_trust_a_reopened_authority() {
    let directory = std::env::temp_dir().join(format!("burrow-authority-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let hosts = [host("api.example.org")];
    let before = Authority::open(Some(&directory), &hosts).await.unwrap();
    let again = Authority::open(Some(&directory), &hosts).await.unwrap();
    let server = again.server(&hosts[0]).unwrap();
    greet(&before, server, "api.example.org").await.unwrap();
    std::fs::write(directory.join(FILE), b"rubbish").unwrap();
    assert!(matches!(Authority::open(Some(&directory), &hosts).await, Err(AuthorityError::Key)));
    std::fs::remove_dir_all(directory).unwrap();
}

/// Other libraries are stricter than ours: that none of them finds fault is seen where they run.
#[tokio::test]
async fn its_text_has_lines_as_others_write_them() {
    let authority = Authority::open(None, &[host("api.example.org")]).await.unwrap();
    let text = authority.pem();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.first(), Some(&"-----BEGIN CERTIFICATE-----"));
    assert_eq!(lines.last(), Some(&"-----END CERTIFICATE-----"));
    assert!(lines.iter().all(|line| line.len() <= 64) && text.ends_with('\n'));
}

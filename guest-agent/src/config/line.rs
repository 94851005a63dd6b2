//! Parses the kernel command line of a machine: the words that begin with `burrow.`. Pure.

use protocol::boot::BootConfig;

use super::network::{Network, parse_network};

/// The port on which an agent listens, and that it dials, unless the line says otherwise.
pub const PORT: u32 = 1024;

/// The settings, with defaults for missing words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of its own on the line")]
pub struct Line {
    /// `burrow.root=/dev/vda`: the device that holds the image. Only an initramfs needs it.
    pub root: Option<String>,
    /// `burrow.scratch=/dev/vdb`: the device of the writable layer, which is in memory otherwise.
    pub scratch: Option<String>,
    /// `burrow.port=1024`: the vsock port.
    pub port: u32,
    /// `burrow.ask`: the host is dialled before the boot, and sends the configuration.
    pub ask: bool,
    /// `burrow.dial`: the host is dialled as soon as the agent serves, and again whenever nobody has a link.
    pub dial: bool,
    /// `burrow.serial=NAME`: the host is at a virtio-serial port instead of a vsock.
    pub serial: Option<String>,
    /// `burrow.config=/dev/vdc`: a device that begins with a boot frame.
    pub drive: Option<String>,
    /// `burrow.workspace`: the machine has a directory of the host, which is mounted at `/workspace`.
    pub workspace: bool,
    /// `burrow.init=/sbin/init`: the program that becomes PID 1 after the boot, with the agent as a
    /// daemon beside it.
    pub hand_over: Option<String>,
    /// `burrow.halt=reboot`: how the machine is switched off.
    pub halt: Halt,
    /// `burrow.net=eth0,10.0.0.2/24,10.0.0.1` and `burrow.dns=10.0.0.1`.
    pub net: Option<Network>,
    pub dns: Vec<String>,
    /// `burrow.probe`: the machine is switched off as soon as it is up; it was only started to find out
    /// whether it boots.
    pub probe: bool,
    /// `rw`: the kernel has mounted the root, which is written to directly.
    pub writable_root: bool,
    /// `burrow.hostname=` (empty by default), `burrow.env=NAME=value` and `burrow.scratch_bytes=`, for
    /// machines whose host sends nothing more.
    pub boot: BootConfig,
    /// Words that ask for nothing that we know.
    pub unknown: Vec<String>,
}

/// How a machine is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Halt {
    #[default]
    PowerOff,
    /// Machines without ACPI end when their processor is reset.
    Reboot,
}

/// Reads `/proc/cmdline`.
pub fn parse_line(text: &str) -> Line {
    let mut line = Line {
        root: None,
        scratch: None,
        port: PORT,
        ask: false,
        dial: false,
        serial: None,
        drive: None,
        workspace: false,
        hand_over: None,
        halt: Halt::default(),
        net: None,
        dns: Vec::new(),
        probe: false,
        writable_root: false,
        boot: BootConfig {
            sandbox: "machine".to_owned(),
            hostname: String::new(),
            root: "/".to_owned(),
            scratch_bytes: 0,
            env: Vec::new(),
            hide: Vec::new(),
            door: true,
            time_us: 0,
            ids: None,
            processes_max: 0,
            group: String::new(),
            scratch_mount: String::new(),
        },
        unknown: Vec::new(),
    };
    for word in words(text) {
        // The later of the two takes precedence, as in the kernel.
        if word == "rw" || word == "ro" {
            line.writable_root = word == "rw";
        } else if let Some(option) = word.strip_prefix("burrow.")
            && !line.take(option)
        {
            line.unknown.push(word);
        }
    }
    line
}

impl Line {
    /// Takes one word; false when it is none that we know.
    fn take(&mut self, word: &str) -> bool {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let text = Some(value.to_owned()).filter(|value| !value.is_empty());
        match key {
            "root" => self.root = text,
            "scratch" => self.scratch = text,
            "serial" => self.serial = text,
            "config" => self.drive = text,
            "init" => self.hand_over = text,
            "net" => match parse_network(value) {
                Some(network) => self.net = Some(network),
                None => return false,
            },
            "dns" => self.dns.extend(text),
            "workspace" => self.workspace = true,
            "ask" => self.ask = true,
            "dial" => self.dial = true,
            "probe" => self.probe = true,
            "port" => match value.parse() {
                Ok(port) => self.port = port,
                Err(_) => return false,
            },
            "halt" => match value {
                "poweroff" => self.halt = Halt::PowerOff,
                "reboot" => self.halt = Halt::Reboot,
                _ => return false,
            },
            "hostname" => value.clone_into(&mut self.boot.hostname),
            "scratch_bytes" => match value.parse() {
                Ok(bytes) => self.boot.scratch_bytes = bytes,
                Err(_) => return false,
            },
            "env" => match value.split_once('=') {
                Some((name, value)) => self.boot.env.push((name.to_owned(), value.to_owned())),
                None => return false,
            },
            _ => return false,
        }
        true
    }
}

/// The words of the line. Quotation marks keep one together and are no part of it, as in the kernel.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.trim_end().chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' | '\t' | '\n' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("there is one from the beginning").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_words_are_read_and_the_kernels_are_ignored() {
        let line = parse_line(
            "console=ttyS0 quiet burrow.root=/dev/vda burrow.ask burrow.port=77 burrow.dns=10.0.0.1 \
             burrow.net=eth0,10.0.0.2/24,10.0.0.1 \
             burrow.env=\"GREETING=hello there\" burrow.halt=reboot rw burrow.hostname=web \
             burrow.workspace\n",
        );
        assert_eq!(line.root.as_deref(), Some("/dev/vda"));
        assert!(line.ask && !line.dial && line.writable_root && line.workspace);
        assert_eq!((line.port, line.halt), (77, Halt::Reboot));
        assert_eq!(line.dns, ["10.0.0.1"]);
        assert_eq!(line.net.map(|network| network.interface).as_deref(), Some("eth0"));
        assert_eq!(line.boot.env, [("GREETING".to_owned(), "hello there".to_owned())]);
        assert_eq!(line.boot.hostname, "web");
        assert!(line.unknown.is_empty());
    }

    #[test]
    fn of_rw_and_ro_the_later_holds() {
        for (text, is_writable) in [("", false), ("ro rw", true), ("rw quiet ro", false)] {
            assert_eq!(parse_line(text).writable_root, is_writable, "{text:?}");
        }
    }

    #[test]
    fn an_invalid_word_is_named_and_affects_no_other() {
        let line = parse_line(
            "burrow.rot=/dev/vda burrow.port=many burrow.env=X burrow.halt=no burrow.net=eth0 burrow.dial",
        );
        assert_eq!(
            line.unknown,
            [
                "burrow.rot=/dev/vda",
                "burrow.port=many",
                "burrow.env=X",
                "burrow.halt=no",
                "burrow.net=eth0"
            ]
        );
        assert!(line.dial && !line.workspace);
        assert_eq!(line.port, PORT);
    }
}

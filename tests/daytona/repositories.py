"""Repositories, by the git of the sandbox."""

import daytona
from wire import refused, sandbox

ME = ("Me", "me@example.org")


def _has_git(made):
    if made.process.exec("git --version").exit_code == 0:
        return True
    print("SKIP: there is no git in the sandbox")
    return False


def a_repository_is_made_changed_and_shared():
    with sandbox() as made:
        if not _has_git(made):
            return
        git, fs = made.git, made.fs
        git.init("/tmp/hub", bare=True, initial_branch="main")
        git.clone("/tmp/hub", "/tmp/one")
        fs.upload_file(b"1", "/tmp/one/a b.txt")
        fs.upload_file(b"1", "/tmp/one/-x")
        status = git.status("/tmp/one")
        assert status.current_branch == "main", status
        assert {(one.name, one.worktree) for one in status.file_status} == {
            ("a b.txt", "Untracked"),
            ("-x", "Untracked"),
        }, status
        git.add("/tmp/one", ["a b.txt", "-x"])
        assert {one.staging for one in git.status("/tmp/one").file_status} == {"Added"}
        first = git.commit("/tmp/one", "it's one\n\nwith more", *ME).sha
        assert len(first) == 40
        refused(lambda: git.commit("/tmp/one", "nothing", *ME))
        empty = git.commit("/tmp/one", "empty", *ME, allow_empty=True).sha
        assert empty != first
        git.push("/tmp/one", branch="main", set_upstream=True)
        status = git.status("/tmp/one")
        assert (status.branch_published, status.ahead, status.behind) == (True, 0, 0), status
        git.clone("/tmp/hub", "/tmp/two", branch="main")
        fs.upload_file(b"2", "/tmp/two/a b.txt")
        git.add("/tmp/two", ["."])
        git.commit("/tmp/two", "two", *ME)
        assert git.status("/tmp/two").ahead == 1
        git.push("/tmp/two")
        git.pull("/tmp/one")
        assert fs.download_file("/tmp/one/a b.txt") == b"2"
        git.clone("/tmp/hub", "/tmp/old", commit_id=first)
        assert git.status("/tmp/old").detached is True
        said = made.process.exec("git log --format='%an %ae %s' -1", cwd="/tmp/two").result
        assert said == "Me me@example.org two\n", said


def branches_and_remotes_come_and_go():
    with sandbox() as made:
        if not _has_git(made):
            return
        git = made.git
        git.init("/tmp/r", initial_branch="main")
        git.commit("/tmp/r", "one", *ME, allow_empty=True)
        git.create_branch("/tmp/r", "topic")
        found = git.branches("/tmp/r")
        assert (sorted(found.branches), found.current) == (["main", "topic"], "topic"), found
        git.checkout_branch("/tmp/r", "main")
        assert git.branches("/tmp/r").current == "main"
        git.delete_branch("/tmp/r", "topic")
        assert git.branches("/tmp/r").branches == ["main"]
        git.remote_add("/tmp/r", "up", "/tmp/a")
        git.remote_add("/tmp/r", "up", "/tmp/b", overwrite=True)
        assert git.remote_get("/tmp/r", "up") == "/tmp/b" and git.remote_get("/tmp/r", "no") is None
        assert [(one.name, one.url) for one in git.remotes("/tmp/r").remotes] == [("up", "/tmp/b")]
        git.configure_user("You", "you@example.org")
        git.set_config("core.abbrev", "9", scope="local", path="/tmp/r")
        assert git.get_config("core.abbrev", scope="local", path="/tmp/r") == "9"
        assert git.get_config("user.name") == "You" and git.get_config("no.such") is None
        made.fs.upload_file(b"1", "/tmp/r/f")
        git.add("/tmp/r", ["f"])
        git.restore("/tmp/r", ["f"], staged=True)
        assert git.status("/tmp/r").file_status[0].worktree == "Untracked"
        git.add("/tmp/r", ["f"])
        git.reset("/tmp/r", mode="hard", target="HEAD")
        assert git.status("/tmp/r").file_status == []
        git.dangerously_authenticate("me", "secret", host="git.example.org")
        assert "me:secret@git.example.org" in made.process.exec("cat ~/.git-credentials").result


def what_git_says_is_an_exception_of_its_own():
    with sandbox() as made:
        if not _has_git(made):
            return
        git = made.git
        git.init("/tmp/r", initial_branch="main")
        git.commit("/tmp/r", "one", *ME, allow_empty=True)
        refused(lambda: git.status("/tmp"), daytona.DaytonaGitRepoNotFoundError)
        refused(lambda: git.clone("/tmp/none", "/tmp/c"), daytona.DaytonaGitRepoNotFoundError)
        refused(lambda: git.checkout_branch("/tmp/r", "no"), daytona.DaytonaGitBranchNotFoundError)
        refused(lambda: git.create_branch("/tmp/r", "main"), daytona.DaytonaGitBranchExistsError)
        git.clone("/tmp/r", "/tmp/a")
        made.process.exec("git -C /tmp/r config receive.denyCurrentBranch ignore")
        git.clone("/tmp/r", "/tmp/b")
        git.commit("/tmp/a", "a", *ME, allow_empty=True)
        git.push("/tmp/a")
        git.commit("/tmp/b", "b", *ME, allow_empty=True)
        refused(lambda: git.push("/tmp/b"), daytona.DaytonaGitPushRejectedError)
        # No name is an option, whatever it is for.
        for call in [
            lambda: git.clone("--upload-pack=touch /tmp/hacked", "/tmp/x"),
            lambda: git.checkout_branch("/tmp/r", "--orphan=x"),
            lambda: git.create_branch("/tmp/r", "-f"),
            lambda: git.push("/tmp/r", remote="--receive-pack=touch /tmp/hacked"),
            lambda: git.reset("/tmp/r", mode="hard --x"),
        ]:
            refused(call, daytona.DaytonaBadRequestError)
        refused(lambda: made.fs.get_file_info("/tmp/hacked"), daytona.DaytonaFileNotFoundError)


def a_password_is_in_no_word_of_a_command():
    with sandbox() as made:
        if not _has_git(made):
            return
        refused(
            lambda: made.git.clone(
                "https://127.0.0.1:1/r", "/tmp/x", username="me", password="secret-word"
            ),
            daytona.DaytonaGitTransportFailedError,
        )
        # Nothing is left of it in a file either.
        files = "/tmp/x/.git/config ~/.gitconfig ~/.git-credentials"
        said = made.process.exec(f"cat {files} 2>/dev/null | grep -c secret-word").result
        assert said == "0\n", said

//! `imagelet login` and `imagelet logout`: a user's credentials, in the files of podman and docker.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;

use credentials::auth_file::{self, AuthFile, AuthFileError, AuthFileKind};
use credentials::{Requester, helper};
use oci::{Reference, RegistryAuth, Secret};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::app::App;
use crate::args::{Login, Logout};
use crate::environment::Environment;
use crate::exit::{Code, Failure, Outcome, chain};
use crate::images::registries;
use crate::manager;

/// Maximum length of a password that is read.
const MAX_PASSWORD: u64 = 64 << 10;

/// A registry, or a part of one.
struct Location {
    /// Host in normal form.
    host: String,
    /// Host and path, as written in the files.
    key: String,
}

impl Location {
    fn parse(text: &str) -> Outcome<Self> {
        let plain = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let plain = plain.trim_end_matches('/');
        let (host, path) = plain.split_once('/').map_or((plain, None), |(host, path)| (host, Some(path)));
        let wrong = |why: &dyn std::fmt::Display| Failure::usage(format!("{text:?} is not a registry: {why}"));
        let host = oci::normal_host(host).map_err(|error| wrong(&error))?.into_owned();
        let host = if host == "index.docker.io" { "docker.io".to_owned() } else { host };
        let path = path.filter(|path| !matches!(*path, "v1" | "v2"));
        let key = path.map_or_else(|| host.clone(), |path| format!("{host}/{path}"));
        if let Some(path) = path {
            Reference::parse(&format!("{host}/{path}/any")).map_err(|error| wrong(&error))?;
        }
        Ok(Self { host, key })
    }
}

/// Returns the files of a user, the preferred one first.
fn files(environment: &Environment, authfile: Option<&PathBuf>) -> Vec<AuthFile> {
    let Environment { auth, home, .. } = environment;
    if let Some(path) = authfile.or(auth.auth_file.as_ref()) {
        return vec![AuthFile { path: path.clone(), kind: AuthFileKind::Containers }];
    }
    let containers = auth.containers(home.as_deref()).into_iter();
    let mut files: Vec<AuthFile> = containers.map(|path| AuthFile { path, kind: AuthFileKind::Containers }).collect();
    let docker = auth
        .docker(home.as_deref())
        .map(|directory| AuthFile { path: directory.join("config.json"), kind: AuthFileKind::Docker });
    match docker {
        Some(docker) if auth.docker_config.is_some() => files.insert(0, docker),
        docker => files.extend(docker),
    }
    files
}

/// Returns the file to which a credential is written: the first existing one, otherwise the preferred one. Blocks.
fn file_to_write(environment: &Environment, authfile: Option<&PathBuf>) -> Outcome<AuthFile> {
    let files = files(environment, authfile);
    let named = authfile.is_some() || environment.auth.auth_file.is_some() || environment.auth.docker_config.is_some();
    let there = files.iter().find(|file| named || file.path.exists());
    // Without `$XDG_RUNTIME_DIR`, only root can create a directory below `/run`.
    let new = || {
        files.iter().find(|file| {
            environment.auth.runtime_dir.is_some() || file.path.starts_with("/run") == environment.privileged
        })
    };
    let chosen = there.or_else(new).or_else(|| files.first());
    chosen.cloned().ok_or_else(|| Failure::failed("there is no home directory: say which file, by --authfile"))
}

fn wrong_file(error: &AuthFileError) -> Failure {
    Failure::system(error)
}

/// Runs work on files on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::failed("files of credentials: the task panicked"))?
}

pub(super) async fn login(app: &App, args: &Login) -> Outcome {
    let location = Location::parse(&args.registry)?;
    if args.get_login {
        let user =
            logged_in(app, args, &location).await?.and_then(|auth| auth.user_and_password()).map(|(user, _)| user);
        let user = user.ok_or_else(|| Failure::failed(format!("not logged in to {}", location.key)))?;
        return app.printer.lines([user]);
    }
    let registries = registries(&app.config, &app.environment.proxies);
    if args.username.is_none()
        && let Some(auth) = logged_in(app, args, &location).await?
    {
        let user = auth.user_and_password().map_or_else(|| "by a token".to_owned(), |(user, _)| format!("as {user}"));
        match registries.check_access(&location.host, Some(auth)).await {
            Ok(()) => return app.printer.lines([format!("Already logged in to {} {user}", location.key)]),
            Err(error) => tracing::warn!("the credential that is there does not work: {}", error.message()),
        }
    }
    let (user, password) = ask(args).await?;
    let auth = RegistryAuth::basic(user.clone(), password.expose());
    let checked = registries.check_access(&location.host, Some(auth)).await;
    checked.map_err(|error| Failure::call(format!("log in to {}", location.host), &error))?;

    let (environment, authfile) = (app.environment.clone(), args.authfile.clone());
    let key = location.key.clone();
    let (file, helper) = blocking(move || {
        let file = file_to_write(&environment, authfile.as_ref())?;
        let helper = file.helper(&key).map_err(|error| wrong_file(&error))?;
        Ok((file, helper))
    })
    .await?;
    let kept = match &helper {
        Some(helper) => {
            let options = manager::helper_options(&app.environment);
            let stored = helper::store(helper, &auth_file::server(&location.key), &user, &password, &options).await;
            stored.map_err(|error| Failure::failed(format!("docker-credential-{helper}: {error}")))?;
            format!("by docker-credential-{helper}")
        }
        None => format!("in {}", file.path.display()),
    };
    let (key, with_helper) = (location.key.clone(), helper.is_some());
    blocking(move || {
        let stored = if with_helper { file.note_helper(&key) } else { file.store(&key, &user, &password) };
        stored.map_err(|error| wrong_file(&error))
    })
    .await?;
    tracing::info!("the credential for {} is kept {kept}", location.key);
    app.printer.lines(["Login Succeeded!"])
}

/// Returns the credential of a user for a location.
async fn logged_in(app: &App, args: &Login, location: &Location) -> Outcome<Option<RegistryAuth>> {
    let mut config = app.config.clone();
    if let Some(file) = &args.authfile {
        config.credentials.docker_config_paths = Some(vec![file.clone()]);
    }
    let keyring = manager::user_keyring(&config, &app.environment).await?;
    let any = Reference::parse(&format!("{}/any", location.key)).map_err(|error| Failure::failed(chain(&error)))?;
    let found = keyring.candidates(&any, &Requester::default()).await;
    let found = found.map_err(|error| Failure::failed(chain(&error)))?;
    Ok(found.candidates.into_iter().map(|candidate| candidate.auth).find(|auth| !auth.is_anonymous()))
}

/// Reads user and password from the command line, from standard input, or from the user at the terminal.
async fn ask(args: &Login) -> Outcome<(String, Secret)> {
    let (user, password, from_stdin) = (args.username.clone(), args.password.clone(), args.password_stdin);
    blocking(move || {
        let failed = |error: std::io::Error| Failure::caused(Code::Failed, "read the password", &error);
        if from_stdin {
            let mut text = Zeroizing::new(String::new());
            std::io::stdin().take(MAX_PASSWORD).read_to_string(&mut text).map_err(failed)?;
            // As in docker: the line end of `echo` is not part of the password.
            let password = Secret::new(text.trim_end_matches(['\r', '\n']));
            return pair(user.unwrap_or_default(), password);
        }
        if let Some(password) = password {
            return pair(user.unwrap_or_default(), password.0);
        }
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage("standard input is no terminal: give --username and --password-stdin"));
        }
        let user = match user {
            Some(user) => user,
            None => line("Username: ").map_err(failed)?.trim().to_owned(),
        };
        let password = hidden_line("Password: ").map_err(failed)?;
        pair(user, Secret::new(password.as_str()))
    })
    .await
}

fn pair(user: String, password: Secret) -> Outcome<(String, Secret)> {
    if user.is_empty() || password.is_empty() {
        return Err(Failure::usage("user name and password must not be empty"));
    }
    if user.contains(':') {
        return Err(Failure::usage("a user name has no colon"));
    }
    Ok((user, password))
}

fn line(prompt: &str) -> std::io::Result<Zeroizing<String>> {
    let mut terminal = std::io::stderr().lock();
    terminal.write_all(prompt.as_bytes())?;
    terminal.flush()?;
    let mut text = Zeroizing::new(String::new());
    std::io::stdin().lock().take(MAX_PASSWORD).read_line(&mut text)?;
    let end = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(end);
    Ok(text)
}

/// Reads a line without echo on the terminal.
fn hidden_line(prompt: &str) -> std::io::Result<Zeroizing<String>> {
    let before = tcgetattr(std::io::stdin())?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden)?;
    let text = line(prompt);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &before)?;
    std::io::stderr().write_all(b"\n")?;
    text
}

pub(super) async fn logout(app: &App, args: &Logout) -> Outcome {
    let location = if args.all { None } else { Some(Location::parse(&args.registry)?) };
    let (environment, authfile) = (app.environment.clone(), args.authfile.clone());
    let key = location.as_ref().map(|location| location.key.clone());
    // The content of each file, and helpers that may have more.
    let (mut removed, helpers) = blocking(move || {
        let (mut removed, mut helpers): (Vec<String>, Vec<(String, String)>) = (Vec::new(), Vec::new());
        for file in files(&environment, authfile.as_ref()) {
            let keys = match &key {
                Some(key) => vec![key.clone()],
                None => file.locations().map_err(|error| wrong_file(&error))?,
            };
            for key in keys {
                if let Some(helper) = file.helper(&key).map_err(|error| wrong_file(&error))? {
                    helpers.push((helper, key));
                }
            }
            match &key {
                Some(key) => {
                    if file.remove(key).map_err(|error| wrong_file(&error))? {
                        removed.push(key.clone());
                    }
                }
                None => removed.extend(file.remove_all().map_err(|error| wrong_file(&error))?),
            }
        }
        Ok((removed, helpers))
    })
    .await?;
    let options = manager::helper_options(&app.environment);
    for (helper, key) in helpers {
        let erased = helper::erase(&helper, &auth_file::server(&key), &options).await;
        erased.map_err(|error| Failure::failed(format!("docker-credential-{helper}: {error}")))?;
        removed.push(key);
    }
    removed.sort();
    removed.dedup();
    match location {
        Some(location) if removed.is_empty() => Err(Failure::failed(format!("not logged in to {}", location.key))),
        Some(location) => app.printer.lines([format!("Removed login credentials for {}", location.key)]),
        None => app.printer.lines(removed.iter().map(|key| format!("Removed login credentials for {key}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        for (text, host, key) in [
            ("R.example", "r.example", "r.example"),
            ("https://r.example/v2/", "r.example", "r.example"),
            ("r.example:5000/team/app", "r.example:5000", "r.example:5000/team/app"),
            ("https://index.docker.io/v1/", "docker.io", "docker.io"),
        ] {
            let got = Location::parse(text).expect(text);
            assert_eq!((got.host.as_str(), got.key.as_str()), (host, key), "{text}");
        }
        for text in ["", "u@h", "r.example/UPPER", "a b"] {
            assert!(Location::parse(text).is_err(), "{text:?}");
        }
    }
}

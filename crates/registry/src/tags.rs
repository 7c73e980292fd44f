//! The tags of a repository (distribution specification 1.1, "Listing Tags"), page by page. Called through [`Repository`].

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::LINK;
use http::{HeaderMap, Method};

use crate::error::{Cause, RegistryError};
use crate::repository::Repository;
use crate::retry::HostAttempts;
use crate::session::{HostRequest, PullSession};

/// Tags that a page is requested to have.
const PAGE: &str = "1000";
/// The most tags of a repository. No known repository has as many; a registry that returns more is not believed.
const MAX_TAGS: usize = 500_000;
/// The most pages of a list.
const MAX_PAGES: usize = 10_000;

impl Repository {
    /// Returns all tags of the repository, sorted. The registry itself is asked before its mirrors, which may know a part of the tags.
    ///
    /// # Errors
    /// [`RegistryError`]; of kind `NotFound` if there is no such repository.
    pub async fn tags(&self) -> Result<Vec<String>, RegistryError> {
        let session = self.session();
        let asked = format!("list tags of {}", self.reference().repository());
        let mut order = session.order(true);
        order.sort_by_key(|host| !session.host_label(*host).upstream);
        if order.is_empty() {
            return Err(session.no_capable_host(&asked, true));
        }
        let mut attempts = HostAttempts::new(order);
        loop {
            match session.tags_at(attempts.host()).await {
                Ok(tags) => return Ok(tags.into_iter().collect()),
                Err(cause) => session.failed(&mut attempts, cause, &asked).await?,
            }
        }
    }
}

impl PullSession {
    /// Returns the tags at a host. A list of which a page cannot be fetched is not returned at all.
    async fn tags_at(&self, host: usize) -> Result<BTreeSet<String>, Cause> {
        let (mut tags, mut query) = (BTreeSet::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let (page, next) = self.page_at(host, query.as_deref()).await?;
            for tag in page {
                if self.is_tag(&tag) {
                    tags.insert(tag);
                } else {
                    tracing::debug!(?tag, "the registry lists a tag that is none");
                }
            }
            if tags.len() > MAX_TAGS {
                return Err(Cause::Content(format!("the repository has more than {MAX_TAGS} tags")));
            }
            match next {
                None => return Ok(tags),
                next if next == query => return Err(Cause::Content("a page of tags links to itself".to_owned())),
                next => query = next,
            }
        }
        Err(Cause::Content(format!("the list of tags has more than {MAX_PAGES} pages")))
    }

    fn is_tag(&self, text: &str) -> bool {
        let named = oci::Reference::parse(&format!("{}:{text}", self.reference.repository()));
        named.is_ok_and(|named| named.tag() == Some(text))
    }

    /// Fetches a page: the first one, or the one with this query. Returns the query of the next page as well.
    async fn page_at(&self, host: usize, query: Option<&str>) -> Result<(Vec<String>, Option<String>), Cause> {
        let options = self.client.options();
        let mut url = self.url_at(host, "tags", "list");
        match query {
            None => {
                url.query_pairs_mut().append_pair("n", PAGE);
            }
            // Of a link, only the query is used: the path and the host of the list stay the same.
            Some(query) => {
                let mut pairs = url.query_pairs_mut();
                for (key, value) in url::form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key != "ns") {
                    pairs.append_pair(&key, &value);
                }
            }
        }
        let request = HostRequest { method: Method::GET, part: "tags", url, headers: HeaderMap::new(), upload: None };
        let answer = self.exchange(host, request).await?;
        if !answer.status().is_success() {
            return Err(answer.into_cause().await);
        }
        let next = next_query(answer.response.headers());
        let bytes = answer.body(options.limits.manifest, options.retry.idle_timeout, self.share.limited()).await?;
        Ok((parse(&bytes)?, next))
    }
}

/// Returns the tags of a page. A repository without tags may have none or null.
fn parse(bytes: &Bytes) -> Result<Vec<String>, Cause> {
    let fault = |why: &str| Cause::Content(format!("the answer is no list of tags: {why}"));
    let page: serde_json::Value = serde_json::from_slice(bytes).map_err(|_| fault("it is not JSON"))?;
    let page = page.as_object().ok_or_else(|| fault("it is no object"))?;
    match page.get("tags") {
        None | Some(serde_json::Value::Null) => Ok(Vec::new()),
        Some(tags) => {
            let tags = tags.as_array().into_iter().flatten().map(|tag| tag.as_str().map(str::to_owned));
            tags.collect::<Option<Vec<_>>>().ok_or_else(|| fault("a tag is no string"))
        }
    }
}

/// Returns the query of the link to the next page (RFC 8288).
fn next_query(headers: &HeaderMap) -> Option<String> {
    headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok()).find_map(|links| {
        links.split('<').find_map(|link| {
            let (target, parameters) = link.split_once('>')?;
            let is_next = |parameter: &str| {
                let (name, value) = parameter.trim_matches([' ', ',']).split_once('=').unwrap_or_default();
                name.trim().eq_ignore_ascii_case("rel") && value.trim().trim_matches('"').eq_ignore_ascii_case("next")
            };
            let (_, query) = target.split_once('?').filter(|_| parameters.split(';').any(is_next))?;
            Some(query.to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn links_to_the_next_page() {
        for (link, want) in [
            ("</v2/a/b/tags/list?n=2&last=x>; rel=\"next\"", Some("n=2&last=x")),
            ("<https://r.example/v2/a/tags/list?last=x,y&n=2>;rel=next", Some("last=x,y&n=2")),
            ("</first?a=1>; rel=first, </next?b=2>; title=\"t\"; Rel=\"Next\"", Some("b=2")),
            ("</v2/a/tags/list?n=2>; rel=\"prev\"", None),
            ("</v2/a/tags/list>; rel=\"next\"", None),
            ("nonsense", None),
        ] {
            let headers = HeaderMap::from_iter([(LINK, HeaderValue::from_static(link))]);
            assert_eq!(next_query(&headers).as_deref(), want, "{link}");
        }
    }

    #[test]
    fn pages() {
        let tags = |text: &'static str| parse(&Bytes::from_static(text.as_bytes()));
        assert_eq!(tags(r#"{"name": "a", "tags": ["1", "2"]}"#).expect("reads"), ["1", "2"]);
        for none in [r#"{"name": "a", "tags": null}"#, r#"{"name": "a"}"#, r#"{"tags": []}"#] {
            assert!(tags(none).expect(none).is_empty());
        }
        for wrong in ["<html>", "[]", r#"{"tags": [1]}"#] {
            assert!(tags(wrong).is_err(), "{wrong}");
        }
    }
}

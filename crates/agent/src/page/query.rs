//! [`ImageQuery`]: the part of the images that a reader asked for: which names, in which order, and which page of them. Pure; read from the URL by
//! [`super::routes`], written into links by [`super::view`].

use std::cmp::Reverse;

use super::inventory::ImageRow;

/// Images on one page.
pub(super) const PAGE: usize = 100;
/// The longest text that names are searched for.
const LONGEST_FILTER: usize = 200;

/// The order of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// By the bytes on disk, the largest first.
    #[default]
    Size,
    /// By the bytes of a pull, the largest first.
    Download,
    /// By the bytes that a removal frees, the largest first.
    Freed,
    Name,
    /// The youngest first.
    Age,
    /// By the last use, the newest first.
    Used,
}

impl Order {
    pub(super) const ALL: [Self; 6] = [Self::Name, Self::Download, Self::Size, Self::Freed, Self::Age, Self::Used];

    /// Returns the word in the URL.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Download => "download",
            Self::Freed => "freed",
            Self::Name => "name",
            Self::Age => "age",
            Self::Used => "used",
        }
    }
}

/// The images that a reader asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageQuery {
    pub(super) order: Order,
    /// Counted from 0.
    pub(super) page: usize,
    /// A part of a name or id, in lower case; empty: all.
    pub(super) filter: String,
}

impl ImageQuery {
    /// Reads the query of a URL.
    ///
    /// # Errors
    /// The parameter that is wrong, in one line.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "sort" => {
                    asked.order = Order::ALL
                        .into_iter()
                        .find(|order| order.word() == value)
                        .ok_or("sort: one of name, download, size, freed, age and used was expected")?;
                }
                "page" => {
                    let page = value.parse::<usize>().ok().and_then(|page| page.checked_sub(1));
                    asked.page = page.ok_or("page: a whole number from 1 on was expected")?;
                }
                "image" if value.len() > LONGEST_FILTER => {
                    return Err(format!("image: at most {LONGEST_FILTER} bytes were expected"));
                }
                "image" => asked.filter = value.trim().to_lowercase(),
                _ => return Err("known parameters are sort, page and image".to_owned()),
            }
        }
        Ok(asked)
    }

    /// Returns the query of a URL for this selection; empty for everything in the usual order.
    pub(super) fn url(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        if !self.filter.is_empty() {
            query.append_pair("image", &self.filter);
        }
        if self.order != Order::default() {
            query.append_pair("sort", self.order.word());
        }
        if self.page > 0 {
            query.append_pair("page", &(self.page + 1).to_string());
        }
        query.finish()
    }

    /// Returns the images of the page, and the number of images on all pages. A page beyond the last one is the last one.
    pub(super) fn select<'a>(&self, images: &'a [ImageRow]) -> Selected<'a> {
        let matches = |row: &&ImageRow| {
            let names = row.image.names.iter().chain([&row.image.id]);
            self.filter.is_empty() || names.into_iter().any(|name| name.to_lowercase().contains(&self.filter))
        };
        let mut rows: Vec<&ImageRow> = images.iter().filter(matches).collect();
        let name = |row: &&ImageRow| (row.image.names.is_empty(), row.image.title().to_owned(), row.image.id.clone());
        match self.order {
            Order::Name => rows.sort_by_cached_key(name),
            Order::Size => rows.sort_by_cached_key(|row| (Reverse(row.disk_bytes()), name(row))),
            Order::Download => rows.sort_by_cached_key(|row| (Reverse(row.download_bytes), name(row))),
            Order::Freed => {
                let freed = |row: &&ImageRow| row.usage.map_or(0, |usage| usage.unique_bytes);
                rows.sort_by_cached_key(|row| (Reverse(freed(row)), name(row)));
            }
            Order::Age => rows.sort_by_cached_key(|row| (Reverse(row.image.first_detected), name(row))),
            Order::Used => rows.sort_by_cached_key(|row| (Reverse(row.image.last_used), name(row))),
        }
        let count = rows.len();
        let pages = count.div_ceil(PAGE).max(1);
        let page = self.page.min(pages - 1);
        let rows = rows.into_iter().skip(page * PAGE).take(PAGE).collect();
        Selected { rows, count, page, pages }
    }
}

/// A page of images.
pub(super) struct Selected<'a> {
    pub(super) rows: Vec<&'a ImageRow>,
    /// Images on all pages.
    pub(super) count: usize,
    /// Counted from 0.
    pub(super) page: usize,
    pub(super) pages: usize,
}

#[cfg(test)]
mod tests {
    use super::super::view::samples::image;
    use super::*;

    #[test]
    fn queries_survive_the_way() {
        let all = [
            ImageQuery::default(),
            ImageQuery { order: Order::Name, page: 3, filter: "a b&c=<d>".to_owned() },
            ImageQuery { filter: "ü%".to_owned(), ..ImageQuery::default() },
        ];
        for query in all {
            assert_eq!(ImageQuery::parse(&query.url()), Ok(query.clone()), "{query:?}");
        }
        assert_eq!(ImageQuery::default().url(), "");
        let long = format!("image={}", "x".repeat(201));
        for wrong in ["sort=colour", "page=0", "page=x", "page=-1", "colour=red", "sort", &long] {
            assert!(ImageQuery::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn images_are_found_and_ordered() {
        let images = [image("r.example/b:1", 5), image("r.example/a:1", 5), image("docker.io/library/C:2", 9)];
        let titles = |query: &str| -> Vec<String> {
            let query = ImageQuery::parse(query).expect("a query");
            query.select(&images).rows.iter().map(|row| row.image.title().to_owned()).collect()
        };
        assert_eq!(titles(""), ["docker.io/library/C:2", "r.example/a:1", "r.example/b:1"]);
        assert_eq!(titles("sort=name"), ["docker.io/library/C:2", "r.example/a:1", "r.example/b:1"]);
        assert_eq!(titles("image=R.EXAMPLE"), ["r.example/a:1", "r.example/b:1"]);
        assert_eq!(titles("image=c:2&page=7"), ["docker.io/library/C:2"], "a page that is gone");
        assert!(titles("image=nothing").is_empty());
        let many: Vec<ImageRow> = (0..250).map(|n| image(&format!("r.example/{n:03}:1"), 1)).collect();
        let page = ImageQuery { page: 2, ..ImageQuery::default() }.select(&many);
        assert_eq!((page.rows.len(), page.count, page.page, page.pages), (50, 250, 2, 3));
        assert_eq!(page.rows[0].image.title(), "r.example/200:1");
    }
}

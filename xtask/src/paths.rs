//! The paths named by a Rust file, read with `syn`, without items for tests (`#[cfg(test)]`).

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, Macro, Meta, Path, UseTree};

/// A path as written: `["crate", "shape", "Packet"]`, with `*` where a `use` takes everything.
pub type Names = Vec<String>;

#[derive(Debug, Default, PartialEq)]
pub struct Named {
    /// Paths of two names and more, from the file's own module.
    pub paths: BTreeSet<Names>,
    /// Paths behind imported names.
    pub imports: BTreeMap<String, Names>,
    /// Child modules for tests only.
    pub test_modules: BTreeSet<String>,
}

pub fn read(text: &str) -> syn::Result<Named> {
    let file = syn::parse_file(text)?;
    let mut reader = Reader { named: Named::default(), inside: Vec::new() };
    reader.visit_file(&file);
    Ok(reader.named)
}

struct Reader {
    named: Named,
    /// Modules with a body (`mod x { … }`) around the reader.
    inside: Names,
}

impl Reader {
    fn add(&mut self, path: Names) {
        if path.len() > 1 {
            let path = self.seen_from_the_file(path);
            self.named.paths.insert(path);
        }
    }

    /// Translates `self` and `super` inside `mod x { … }`.
    fn seen_from_the_file(&self, path: Names) -> Names {
        let ups = path.iter().take_while(|name| *name == "super").count();
        if self.inside.is_empty() || (ups == 0 && path[0] != "self") {
            return path;
        }
        let rest = path[ups.max(1)..].iter().cloned();
        match self.inside.len().checked_sub(ups) {
            Some(depth) => ["self".to_owned()].into_iter().chain(self.inside[..depth].to_vec()).chain(rest).collect(),
            None => vec!["super".to_owned(); ups - self.inside.len()].into_iter().chain(rest).collect(),
        }
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Names>();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) if name.ident == "self" => {
                self.import(before.last().cloned().unwrap_or_default(), before.to_vec());
            }
            UseTree::Name(name) => self.import(name.ident.to_string(), with(&name.ident)),
            UseTree::Rename(rename) if rename.ident == "self" => {
                self.import(rename.rename.to_string(), before.to_vec())
            }
            UseTree::Rename(rename) => self.import(rename.rename.to_string(), with(&rename.ident)),
            UseTree::Glob(_) => self.add(before.iter().cloned().chain(["*".to_owned()]).collect()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
        }
    }

    fn import(&mut self, name: String, path: Names) {
        if self.inside.is_empty() {
            self.named.imports.insert(name, path.clone());
        }
        self.add(path);
    }

    /// A macro's arguments are tokens: a path is names with `::` between.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Names::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.add(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(path);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        } else if let Item::Mod(module) = item {
            self.named.test_modules.insert(module.ident.to_string());
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.inside.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// An attribute's arguments, too: `#[arg(value_parser = crate::rate::parse)]`.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.add_tokens(call.tokens.clone());
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, `#[cfg(any(test, …))]`, `#[cfg(all(test, …))]`; not `#[cfg(not(test))]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    let mut words = conditions.filter_map(|attribute| {
        let text = attribute.meta.require_list().ok()?.tokens.to_string();
        Some(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect::<Vec<_>>())
    });
    words.any(|words| words.iter().any(|word| word == "test") && words.iter().all(|word| word != "not"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        read(text).expect("it is Rust").paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn trees_of_use_become_paths_and_names() {
        let named = read("use crate::a::{self, b::C, d::*, E as F};").expect("it is Rust");
        let shown: Vec<_> = named.paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(shown, ["crate::a", "crate::a::E", "crate::a::b::C", "crate::a::d::*"]);
        let imports: Vec<_> = named.imports.iter().map(|(name, path)| format!("{name}={}", path.join("::"))).collect();
        assert_eq!(imports, ["C=crate::a::b::C", "F=crate::a::E", "a=crate::a"]);
    }

    #[test]
    fn paths_are_found_in_code_types_and_arguments_of_macros() {
        let text = "fn f(x: super::T<crate::a::U>) -> u8 { a::b(); write!(x, \"{}\", crate::c::D::new(e::f(), g)) }";
        assert_eq!(paths(text), ["a::b", "crate::a::U", "crate::c::D::new", "e::f", "super::T"]);
    }

    #[test]
    fn paths_are_found_in_arguments_of_attributes() {
        assert_eq!(paths("#[arg(value_parser = crate::rate::parse, long)] struct S;"), ["crate::rate::parse"]);
    }

    #[test]
    fn tests_are_left_out() {
        let text = "#[cfg(test)] use a::b; #[cfg(any(test, feature = \"x\"))] mod m; #[cfg(test)] mod t { use c::d; }
            struct S; impl S { #[cfg(test)] fn f() { e::f(); } } #[cfg(not(test))] use g::h;";
        assert_eq!(paths(text), ["g::h"]);
        let modules = read(text).expect("it is Rust").test_modules;
        assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["m", "t"]);
    }

    #[test]
    fn paths_in_a_module_with_a_body_are_seen_seen_from_the_file() {
        let text = "mod m { use super::a; use super::super::b; use self::c::d; use crate::e; use f::g; }";
        assert_eq!(paths(text), ["crate::e", "f::g", "self::a", "self::m::c::d", "super::b"]);
    }
}

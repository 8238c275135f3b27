//! Models with what they stand on.

use serde_json::{Value as Json, json};

use super::{Kind, STANDS_ON, Thing, add, deeper};
use crate::models::{ModelInfo, Registry};

/// A version of a model, then what it was made of.
pub fn of_model(registry: &Registry, info: &ModelInfo) -> Vec<Thing> {
    let lineage = &info.lineage;
    let text = |name: &str| lineage[name].as_str().map(str::to_owned);
    let mut options = lineage["options"].clone();
    match &mut options {
        Json::Object(options) => drop(options.entry("source").or_insert_with(|| json!(info.source))),
        other => *other = json!({ "source": info.source }),
    }
    let mut things = vec![Thing {
        version: Some(info.version.into()),
        digest: info.digest.clone(),
        options: Some(options),
        seed: lineage["seed"].as_i64(),
        statement: text("statement"),
        ..Thing::new(Kind::Model, info.name.clone())
    }];
    match serde_json::from_value::<Vec<Thing>>(lineage[STANDS_ON].clone()) {
        Ok(known) => add(&mut things, known),
        // Of an earlier version of this program: names and numbers.
        Err(_) => {
            add(&mut things, tables_of_numbers(&lineage["tables"]));
            if let Some(base) = text("base") {
                add(&mut things, of_policy(registry, &base));
            }
        }
    }
    things
}

/// A model that something names, then what it was made of, if it is there or was.
pub fn of_policy(registry: &Registry, reference: &str) -> Vec<Thing> {
    if let Ok(info) = registry.get(reference).or_else(|_| registry.dropped(reference)) {
        return deeper(of_model(registry, &info));
    }
    let (name, version) = reference.split_once('@').unwrap_or((reference, ""));
    vec![Thing { version: version.parse().ok(), depth: 1, ..Thing::new(Kind::Model, name) }]
}

fn tables_of_numbers(tables: &Json) -> Vec<Thing> {
    let numbers = |versions: &Json| match versions {
        Json::Array(versions) => versions.iter().filter_map(Json::as_u64).collect(),
        version => version.as_u64().into_iter().collect::<Vec<_>>(),
    };
    let named = tables.as_object().into_iter().flatten().flat_map(|(name, versions)| {
        let name = name.strip_prefix("public.").unwrap_or(name).to_owned();
        numbers(versions).into_iter().map(move |version| Thing {
            version: Some(version),
            depth: 1,
            ..Thing::new(Kind::Table, name.clone())
        })
    });
    named.collect()
}

/// A model's lineage but for its things, which tell of tables that those who may use the model may not read.
pub fn without_stands_on(lineage: &Json) -> Json {
    let mut shown = lineage.clone();
    if let Json::Object(members) = &mut shown {
        members.remove(STANDS_ON);
    }
    shown
}

//! `has_table_privilege` and its like: PostgreSQL's questions about privileges, in every session.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};
use rolloutdb_sql::Privilege;

use super::{Access, Object};
use crate::engine::apply::planner::split_table_name;
use crate::engine::database::Database;
use crate::engine::roles::unknown_role;
use crate::engine::session::CATALOG_NAME;
use crate::engine::session_user::SessionUser;
use crate::error::{Error, Result};

/// What a function asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    Table,
    /// A privilege on the table is one on each column: there are none on single ones.
    Column,
    Schema,
    Database,
    Model,
    Agent,
    Role,
}

/// `has_table_privilege([role,] table, privileges)`, and those about other things, for the session of `user`.
pub fn functions(database: &Database, user: &SessionUser) -> Vec<ScalarUDF> {
    let questions = [
        ("has_table_privilege", Question::Table),
        ("has_any_column_privilege", Question::Table),
        ("has_column_privilege", Question::Column),
        ("has_schema_privilege", Question::Schema),
        ("has_database_privilege", Question::Database),
        ("has_model_privilege", Question::Model),
        ("has_agent_privilege", Question::Agent),
        ("pg_has_role", Question::Role),
    ];
    let function = |(name, question): (&'static str, Question)| {
        let num_arguments = if question == Question::Column { 3 } else { 2 };
        // The first one, the role, may be left out.
        let counts = vec![TypeSignature::Any(num_arguments), TypeSignature::Any(num_arguments + 1)];
        let signature = Signature::one_of(counts, Volatility::Stable);
        ScalarUDF::new_from_impl(HasPrivilege { name, question, num_arguments, signature, database: database.clone(), user: user.clone() })
    };
    questions.map(function).into()
}

struct HasPrivilege {
    name: &'static str,
    question: Question,
    num_arguments: usize,
    signature: Signature,
    database: Database,
    user: SessionUser,
}

impl fmt::Debug for HasPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Of one database and one session, which a name of a function belongs to.
impl PartialEq for HasPrivilege {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.database.shared, &other.database.shared)
    }
}

impl Eq for HasPrivilege {}

impl Hash for HasPrivilege {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for HasPrivilege {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let arguments = ColumnarValue::values_to_arrays(&arguments.args)?;
        let (roles, rest) = arguments.split_at(arguments.len() - self.num_arguments);
        let role = roles.first().map(texts).transpose()?;
        let (named, privileges) = (texts(&rest[0])?, texts(&rest[self.num_arguments - 1])?);
        let is_number = rest[0].data_type().is_integer();
        let answer = |row: usize| -> Result<Option<bool>> {
            let has_null = [Some(&named), Some(&privileges), role.as_ref()].into_iter().flatten().any(|column| column.is_null(row));
            if has_null {
                return Ok(None);
            }
            let role = role.as_ref().map_or_else(|| self.user.role(), |names| names.as_string::<i32>().value(row).to_owned());
            if self.database.roles().get(&role).is_none() {
                return Err(unknown_role(&role));
            }
            let (name, privileges) = (named.as_string::<i32>().value(row), privileges.as_string::<i32>().value(row));
            self.answer(&Access::of(&self.database, &role), name, is_number, privileges)
        };
        if is_constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(answer(0)?)));
        }
        let answers = (0..named.len()).map(answer).collect::<Result<BooleanArray>>()?;
        Ok(ColumnarValue::Array(Arc::new(answers)))
    }
}

fn texts(column: &ArrayRef) -> DataFusionResult<ArrayRef> {
    Ok(cast(column, &DataType::Utf8)?)
}

impl HasPrivilege {
    /// `is_number`: the name is an object's number. Which object has it is known to the catalog of a session alone, so that only a superuser, who may
    /// do everything, gets another answer than NULL, as PostgreSQL gives it for a number that nothing has.
    fn answer(&self, access: &Access, name: &str, is_number: bool, privileges: &str) -> Result<Option<bool>> {
        let wanted = privileges.split(',').map(|privilege| Wanted::parse(privilege.trim())).collect::<Result<Vec<_>>>()?;
        if access.is_superuser() {
            return Ok(Some(true));
        }
        if is_number {
            return Ok(None);
        }
        if self.question == Question::Role {
            return Ok(Some(
                access.is_member(name) || (privileges.trim() != "USAGE" && self.database.roles().may_become(access.role(), name)),
            ));
        }
        let Some(object) = self.object(name)? else {
            return Ok(Some(wanted.iter().any(|wanted| wanted.privilege == Some(Privilege::Select))));
        };
        Ok(Some(wanted.iter().any(|wanted| wanted.is_held(access, &object))))
    }

    /// `None`: a table that describes what there is, which everybody reads.
    fn object(&self, name: &str) -> Result<Option<Object>> {
        let shared = &self.database.shared;
        Ok(Some(match self.question {
            Question::Table | Question::Column => {
                let (schema, table) = split_table_name(name);
                if super::relations::CATALOG_SCHEMAS.contains(&schema.as_str()) {
                    return Ok(None);
                }
                let object = Object::table(&schema, &table);
                if !shared.knows(&object) {
                    return Err(crate::engine::statement::unknown_table(shared, &schema, &table));
                }
                object
            }
            Question::Schema => Object::schema(name),
            Question::Database if name == CATALOG_NAME => Object::Database,
            Question::Database => {
                let known = vec![CATALOG_NAME.to_owned()];
                return Err(Error::UnknownObject { kind: "database", name: name.to_owned(), known });
            }
            Question::Model => Object::model(&shared.registry.get(name)?.name),
            Question::Agent => Object::agent(&shared.agents.get(name)?.name),
            Question::Role => return Err(Error::Internal("a role is no object with privileges".to_owned())),
        }))
    }
}

/// One privilege of a list such as `SELECT, INSERT WITH GRANT OPTION`.
struct Wanted {
    /// `None`: one that PostgreSQL has and this database has not; nobody but an owner holds it.
    privilege: Option<Privilege>,
    with_option: bool,
}

impl Wanted {
    /// # Errors
    /// [`Error::InvalidParameter`] (22023) for what is no privilege.
    fn parse(text: &str) -> Result<Self> {
        let upper = text.to_ascii_uppercase();
        let (word, with_option) = match upper.strip_suffix("WITH GRANT OPTION").or_else(|| upper.strip_suffix("WITH ADMIN OPTION")) {
            Some(word) => (word.trim_end(), true),
            None => (upper.as_str(), false),
        };
        let privilege = Privilege::ALL.into_iter().find(|privilege| privilege.keyword() == word);
        let is_known = ["REFERENCES", "TRIGGER", "MAINTAIN", "CONNECT", "TEMPORARY", "TEMP", "MEMBER", "SET"].contains(&word);
        if privilege.is_none() && !is_known {
            let expected = "a privilege, such as 'SELECT'".to_owned();
            return Err(Error::InvalidParameter { name: "privilege".to_owned(), found: format!("'{text}'"), expected });
        }
        Ok(Self { privilege, with_option })
    }

    fn is_held(&self, access: &Access, object: &Object) -> bool {
        match self.privilege {
            None => access.owns(object) || *object == Object::Database,
            Some(privilege) if !object.privileges().contains(&privilege) => false,
            Some(privilege) if self.with_option => access.grantor(object, privilege).is_some(),
            Some(privilege) => access.has(object, privilege),
        }
    }
}

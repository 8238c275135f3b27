//! Roles: `CREATE ROLE`, `ALTER ROLE`, `DROP ROLE`, membership by `GRANT` and `REVOKE`, `SET ROLE`.
//!
//! `USER` is `ROLE` with `LOGIN`, `GROUP` is `ROLE`. A statement prints as what it reads back as, but for passwords, which are never printed.

mod print;

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::Statement;
use crate::error::{Error, Result};
use crate::name::Text;
use crate::parser::Parser;

/// `CREATE {ROLE | USER | GROUP} name [[WITH] option ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct CreateRole {
    pub name: String,
    /// Different kinds, as ordered in the text; those of `CREATE USER` begin with `LOGIN`, unless there is another word about it.
    pub options: Vec<RoleOption>,
}

/// `ALTER {ROLE | USER | GROUP} role {[WITH] option ... | RENAME TO name}`
#[derive(Debug, Clone, PartialEq)]
pub struct AlterRole {
    pub role: RoleName,
    pub action: AlterRoleAction,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AlterRoleAction {
    /// At least one, of different kinds.
    Options(Vec<RoleOption>),
    RenameTo(String),
}

/// `DROP {ROLE | USER | GROUP} [IF EXISTS] name, ...`
#[derive(Debug, Clone, PartialEq)]
pub struct DropRole {
    /// At least one.
    pub names: Vec<String>,
    pub if_exists: bool,
}

/// `GRANT role, ... TO member, ... [WITH {ADMIN | INHERIT | SET} {OPTION | TRUE | FALSE}, ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct GrantRole {
    /// At least one.
    pub roles: Vec<String>,
    /// At least one.
    pub members: Vec<RoleName>,
    /// `None`: as it is, or `false` for a new membership.
    pub admin: Option<bool>,
    /// `None`: as it is, or `true` for a new membership.
    pub inherit: Option<bool>,
    /// `None`: as it is, or `true` for a new membership.
    pub set: Option<bool>,
}

/// `REVOKE [{ADMIN | INHERIT | SET} OPTION FOR] role, ... FROM member, ... [CASCADE | RESTRICT]`
///
/// `CASCADE` is read and forgotten: what a member has granted stays.
#[derive(Debug, Clone, PartialEq)]
pub struct RevokeRole {
    /// `None`: the membership.
    pub option: Option<MembershipOption>,
    /// At least one.
    pub roles: Vec<String>,
    /// At least one.
    pub members: Vec<RoleName>,
}

/// What a membership allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MembershipOption {
    Admin,
    Inherit,
    Set,
}

/// `SET [SESSION] ROLE {name | NONE}`, `RESET ROLE`
#[derive(Debug, Clone, PartialEq)]
pub struct SetRole {
    /// `None`: the session's own user again.
    pub role: Option<String>,
    /// Until the end of the transaction.
    pub local: bool,
}

/// A role by name or by what it is in the session.
#[derive(Debug, Clone, PartialEq)]
pub enum RoleName {
    Named(String),
    /// `CURRENT_USER`, `CURRENT_ROLE`
    Current,
    /// `SESSION_USER`
    Session,
}

/// What follows `WITH` of `CREATE ROLE` and `ALTER ROLE`.
#[derive(Debug, Clone, PartialEq)]
pub enum RoleOption {
    Superuser(bool),
    Login(bool),
    CreateRole(bool),
    CreateDatabase(bool),
    Inherit(bool),
    /// -1: no limit.
    ConnectionLimit(i64),
    /// `None`: `PASSWORD NULL`.
    Password(Option<Password>),
    ValidUntil(String),
    /// `IN ROLE role, ...`: those that the new one is a member of.
    InRole(Vec<String>),
    /// `ROLE member, ...`: those that are members of the new one.
    Members(Vec<RoleName>),
    /// `ADMIN member, ...`
    Admins(Vec<RoleName>),
}

/// What is printed where a password was; there is none of that length.
const HIDDEN: &str = "***";

/// A password, which only who asks for it sees.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The password, or a verifier of it: whatever the text had.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Text(HIDDEN))
    }
}

/// Whether `GRANT` or `REVOKE`, which comes next, is about membership: it has no ON.
pub(super) fn is_membership(parser: &Parser) -> bool {
    // Privileges and roles before ON, TO or FROM are words, with commas or lists of columns between; a longer list is one of roles.
    const TOKENS_MAX: usize = 200;
    let end = if parser.is_at("GRANT") { "TO" } else { "FROM" };
    let words = (1..TOKENS_MAX).filter_map(|n| parser.peek_word(n));
    words.take_while(|word| word != end).all(|word| word != "ON")
}

/// Reads a statement whose first words are those of a role's.
pub(super) fn parse_create(parser: &mut Parser) -> Result<Statement> {
    parser.expect("CREATE")?;
    let is_user = parser.is_at("USER");
    expect_kind(parser)?;
    if is_user && parser.is_at("MAPPING") {
        return Err(Error::not_supported_but("CREATE USER MAPPING", "there are no foreign servers"));
    }
    let name = parse_new_name(parser)?;
    let mut options = parse_options(parser, true)?;
    if is_user && !options.iter().any(|option| matches!(option, RoleOption::Login(_))) {
        options.insert(0, RoleOption::Login(true));
    }
    Ok(Statement::CreateRole(CreateRole { name, options }))
}

pub(super) fn parse_alter(parser: &mut Parser) -> Result<Statement> {
    parser.expect("ALTER")?;
    expect_kind(parser)?;
    if parser.is_at("ALL") {
        return Err(settings_of_roles());
    }
    let role = parse_role(parser)?;
    if parser.eat("RENAME TO") {
        let action = AlterRoleAction::RenameTo(parse_new_name(parser)?);
        return Ok(Statement::AlterRole(AlterRole { role, action }));
    }
    if ["SET", "RESET", "IN DATABASE"].iter().any(|words| parser.is_at(words)) {
        return Err(settings_of_roles());
    }
    if parser.is_at("ADD USER") || parser.is_at("DROP USER") {
        return Err(Error::not_supported_but("ALTER GROUP ... ADD USER", "write GRANT group TO user, or REVOKE group FROM user"));
    }
    let options = parse_options(parser, false)?;
    if options.is_empty() {
        return Err(parser.expected("an option of the role, such as PASSWORD, or RENAME TO"));
    }
    Ok(Statement::AlterRole(AlterRole { role, action: AlterRoleAction::Options(options) }))
}

pub(super) fn parse_drop(parser: &mut Parser) -> Result<Statement> {
    parser.expect("DROP")?;
    expect_kind(parser)?;
    let if_exists = parser.eat("IF EXISTS");
    let names = parser.comma_separated(parse_name)?;
    Ok(Statement::DropRole(DropRole { names, if_exists }))
}

pub(super) fn parse_grant(parser: &mut Parser) -> Result<Statement> {
    parser.expect("GRANT")?;
    let roles = parser.comma_separated(parse_name)?;
    parser.expect("TO")?;
    let members = parser.comma_separated(parse_role)?;
    let mut grant = GrantRole { roles, members, admin: None, inherit: None, set: None };
    if parser.eat("WITH") {
        for (option, value) in parser.comma_separated(parse_granted_option)? {
            let place = match option {
                MembershipOption::Admin => &mut grant.admin,
                MembershipOption::Inherit => &mut grant.inherit,
                MembershipOption::Set => &mut grant.set,
            };
            if place.replace(value).is_some() {
                return Err(Error::Option { name: option.to_string().to_lowercase(), problem: "is given twice".to_owned() });
            }
        }
    }
    refuse_granted_by(parser)?;
    Ok(Statement::GrantRole(grant))
}

pub(super) fn parse_revoke(parser: &mut Parser) -> Result<Statement> {
    parser.expect("REVOKE")?;
    let option = [MembershipOption::Admin, MembershipOption::Inherit, MembershipOption::Set];
    let option = option.into_iter().find(|option| parser.eat(&format!("{option} OPTION FOR")));
    let roles = parser.comma_separated(parse_name)?;
    parser.expect("FROM")?;
    let members = parser.comma_separated(parse_role)?;
    refuse_granted_by(parser)?;
    if !parser.eat("CASCADE") {
        parser.eat("RESTRICT");
    }
    Ok(Statement::RevokeRole(RevokeRole { option, roles, members }))
}

/// `SET [SESSION | LOCAL] ROLE`, `RESET ROLE`; `None`: another statement comes next.
pub(super) fn parse_set(parser: &mut Parser) -> Result<Option<Statement>> {
    if parser.eat("RESET ROLE") {
        return Ok(Some(Statement::SetRole(SetRole { role: None, local: false })));
    }
    // `SET role = x`, as drivers write settings, means the same.
    let local = parser.is_at("SET LOCAL ROLE");
    if !["SET LOCAL ROLE", "SET SESSION ROLE", "SET ROLE"].iter().any(|words| parser.eat(words)) {
        return Ok(None);
    }
    if !parser.eat_token(&Token::Eq) {
        parser.eat("TO");
    }
    let is_none = parser.eat("NONE") || parser.eat("DEFAULT");
    let role = if is_none { None } else { Some(parse_name(parser)?) };
    Ok(Some(Statement::SetRole(SetRole { role, local })))
}

fn expect_kind(parser: &mut Parser) -> Result<()> {
    if parser.eat("ROLE") || parser.eat("USER") || parser.eat("GROUP") { Ok(()) } else { Err(parser.expected("ROLE or USER")) }
}

fn parse_name(parser: &mut Parser) -> Result<String> {
    parser.name("the role's name")
}

/// The words that stand for a role of the session name no new one.
fn parse_new_name(parser: &mut Parser) -> Result<String> {
    if ["CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "USER"].iter().any(|word| parser.is_at(word)) {
        return Err(parser.expected("the role's name"));
    }
    parse_name(parser)
}

fn parse_role(parser: &mut Parser) -> Result<RoleName> {
    parser.eat("GROUP");
    if parser.eat("CURRENT_USER") || parser.eat("CURRENT_ROLE") {
        return Ok(RoleName::Current);
    }
    if parser.eat("SESSION_USER") {
        return Ok(RoleName::Session);
    }
    Ok(RoleName::Named(parse_name(parser)?))
}

fn parse_granted_option(parser: &mut Parser) -> Result<(MembershipOption, bool)> {
    let option = match parser.peek_word(0).as_deref() {
        Some("ADMIN") => MembershipOption::Admin,
        Some("INHERIT") => MembershipOption::Inherit,
        Some("SET") => MembershipOption::Set,
        _ => return Err(parser.expected("ADMIN, INHERIT or SET")),
    };
    parser.next_token();
    if parser.eat("OPTION") || parser.eat("TRUE") {
        return Ok((option, true));
    }
    if parser.eat("FALSE") { Ok((option, false)) } else { Err(parser.expected("OPTION, TRUE or FALSE")) }
}

fn refuse_granted_by(parser: &Parser) -> Result<()> {
    if parser.is_at("GRANTED BY") {
        return Err(Error::not_supported_but("GRANTED BY", "leave it out: it is the role that runs the statement"));
    }
    Ok(())
}

fn settings_of_roles() -> Error {
    Error::not_supported_but("ALTER ROLE ... SET", "SET is for one session; clients set what they need when they connect")
}

/// Options with and without WITH; `is_new`: those of `CREATE ROLE` too.
fn parse_options(parser: &mut Parser, is_new: bool) -> Result<Vec<RoleOption>> {
    parser.eat("WITH");
    let mut options: Vec<RoleOption> = Vec::new();
    while !parser.at_end_of_statement() {
        let Some(option) = parse_option(parser, is_new)? else { continue };
        if options.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(&option)) {
            return Err(Error::Option { name: option.word().to_lowercase(), problem: "is given twice".to_owned() });
        }
        options.push(option);
    }
    Ok(options)
}

/// `None`: one that changes nothing.
fn parse_option(parser: &mut Parser, is_new: bool) -> Result<Option<RoleOption>> {
    let Some(word) = parser.peek_word(0) else { return Err(parser.expected("an option of the role")) };
    let flag = |option: fn(bool) -> RoleOption, value| Ok(Some(option(value)));
    let unknown = parser.expected("an option of the role");
    parser.next_token();
    match word.as_str() {
        "SUPERUSER" => flag(RoleOption::Superuser, true),
        "NOSUPERUSER" => flag(RoleOption::Superuser, false),
        "LOGIN" => flag(RoleOption::Login, true),
        "NOLOGIN" => flag(RoleOption::Login, false),
        "CREATEROLE" => flag(RoleOption::CreateRole, true),
        "NOCREATEROLE" => flag(RoleOption::CreateRole, false),
        "CREATEDB" => flag(RoleOption::CreateDatabase, true),
        "NOCREATEDB" => flag(RoleOption::CreateDatabase, false),
        "INHERIT" => flag(RoleOption::Inherit, true),
        "NOINHERIT" => flag(RoleOption::Inherit, false),
        "NOREPLICATION" | "NOBYPASSRLS" => Ok(None),
        "REPLICATION" | "BYPASSRLS" => {
            Err(Error::not_supported_but(format!("the option {word} of roles"), "leave it out: there is nothing that it would allow"))
        }
        "CONNECTION" => {
            parser.expect("LIMIT")?;
            let is_negative = parser.eat_token(&Token::Minus);
            let limit = i64::try_from(parser.unsigned("a number of connections")?).ok().filter(|limit| *limit <= i64::from(i32::MAX));
            match limit {
                Some(1) if is_negative => Ok(Some(RoleOption::ConnectionLimit(-1))),
                Some(limit) if !is_negative => Ok(Some(RoleOption::ConnectionLimit(limit))),
                _ => Err(Error::Option { name: "connection limit".to_owned(), problem: "takes a number from -1 to 2147483647".to_owned() }),
            }
        }
        "ENCRYPTED" => {
            parser.expect("PASSWORD")?;
            parse_password(parser).map(Some)
        }
        "PASSWORD" => parse_password(parser).map(Some),
        "UNENCRYPTED" => Err(Error::not_supported_but("UNENCRYPTED PASSWORD", "write PASSWORD: what is kept is a SCRAM-SHA-256 verifier")),
        "VALID" => {
            parser.expect("UNTIL")?;
            Ok(Some(RoleOption::ValidUntil(parser.string("a time in quotes, such as '2030-01-01'")?)))
        }
        "SYSID" => {
            parser.unsigned("a number")?;
            Ok(None)
        }
        "IN" if is_new => {
            if !parser.eat("ROLE") {
                parser.expect("GROUP")?;
            }
            Ok(Some(RoleOption::InRole(parser.comma_separated(parse_name)?)))
        }
        "ROLE" | "USER" if is_new => Ok(Some(RoleOption::Members(parser.comma_separated(parse_role)?))),
        "ADMIN" if is_new => Ok(Some(RoleOption::Admins(parser.comma_separated(parse_role)?))),
        _ => Err(unknown),
    }
}

fn parse_password(parser: &mut Parser) -> Result<RoleOption> {
    if parser.eat("NULL") {
        return Ok(RoleOption::Password(None));
    }
    Ok(RoleOption::Password(Some(Password(parser.string("a password in quotes, or NULL")?))))
}

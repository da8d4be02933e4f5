// `credential add|ls|rm|test`: secrets that sandboxes use without having them.
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include <filesystem>

#include "base/os/fd.h"
#include "base/os/process.h"
#include "cli/commands.h"

namespace moorage::cli {
namespace {

constexpr size_t kMaxSecret = 64 << 10;
constexpr std::string_view kGraphqlHosts[] = {"api.github.com", "gitlab.com", "api.linear.app",
                                              "api.monday.com"};

struct AddOptions {
  std::string name;
  std::vector<std::string> urls;
  std::string form = "bearer";
  std::vector<std::string> methods;
  std::vector<std::string> labels;
  std::string variable;
  std::string command;
  std::string file;
  bool from_stdin = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "Name of the credential"}, name);
    options.values({"--for", "URL", "Send it to this host and path; may be repeated"}, urls);
    options.value({"--as", "FORM", "bearer (default), basic[:USER], header:NAME, ssh-key"}, form);
    options.values({"--method", "METHOD", "Only in such requests, like GET; may be repeated"},
                   methods);
    options.values({"--label", "KEY=VALUE", "Only for workspaces with this label; may be repeated"},
                   labels);
    options.value({"--env", "VAR", "Variable that holds a placeholder inside"}, variable);
    options.value(
        {"--from-command", "COMMAND", "Run it when the secret is needed, and take its output"},
        command);
    options.value({"--from-file", "PATH", "Read this file when the secret is needed"}, file);
    options.flag({"--from-stdin", "", "Read the secret now, and keep it encrypted"}, from_stdin);
  }
};

// Without echo, if it is typed: its first line, or all of a key.
std::string read_secret(Context& context, bool is_key) {
  const bool typed = isatty(STDIN_FILENO) == 1;
  termios before{};
  if (typed) {
    context.note("type the secret; it is not shown");
    tcgetattr(STDIN_FILENO, &before);
    termios silent = before;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
  }
  std::string secret;
  char byte = 0;
  while (secret.size() <= kMaxSecret && read(STDIN_FILENO, &byte, 1) == 1 &&
         (is_key || byte != '\n'))
    secret += byte;
  if (typed) {
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
  }
  if (secret.empty() || secret.size() > kMaxSecret)
    throw Error(Code::invalid_argument,
                "standard input has no secret of 1 B to 64 KiB in its first line");
  return secret;
}

// As CMS (RFC 5652) in DER, for the holder of the certificate's key. By the program, because
// linking the library would double the time in which every command starts.
std::string encrypted(const std::string& secret, const std::string& certificate) {
  const base::Fd recipient(
      base::check(memfd_create("certificate", MFD_CLOEXEC), "create a file in memory"));
  base::write_all(recipient.get(), certificate);
  base::ProcessOptions options;
  options.input = secret;
  options.inherit_fds = {recipient.get()};
  const auto result =
      base::run_process({"openssl", "cms", "-encrypt", "-aes-256-gcm", "-binary", "-outform", "DER",
                         "/proc/self/fd/" + std::to_string(recipient.get())},
                        options);
  if (!result.ok()) throw Error(Code::internal, "openssl cannot encrypt the secret", result.error);
  return result.output;
}

std::map<std::string, std::string> label_map(const std::vector<std::string>& words) {
  std::map<std::string, std::string> labels;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == std::string::npos)
      throw Error(Code::invalid_argument, "'" + word + "' is not a label", "--label KEY=VALUE");
    labels[word.substr(0, at)] = word.substr(at + 1);
  }
  return labels;
}

void print_credential(Context& context, const Json& credential) {
  for (const std::string& url : credential.byte_list("for"))
    context.print_label("for", printable(url));
  context.print_label("as", credential.text("as"));
  if (credential.has("variable"))
    context.print_label("inside",
                        credential.text("variable") + "=" + credential.text("placeholder"));
}

// A path cannot bound what one endpoint for everything does.
void warn_of_graphql(Context& context, const Json& credential) {
  for (const std::string& url : credential.byte_list("for")) {
    for (const std::string_view host : kGraphqlHosts) {
      if (url.find(host) != std::string::npos)
        context.note(std::string(host) +
                     " has a GraphQL endpoint; a path like /graphql allows all "
                     "that the secret itself allows");
    }
  }
}

void add(Context& context, const AddOptions& options) {
  JsonObject request;
  request.add("name", options.name).add("as", options.form).add("for", options.urls);
  if (!options.methods.empty()) request.add("methods", options.methods);
  if (!options.labels.empty()) request.add("labels", label_map(options.labels));
  if (!options.variable.empty()) request.add("variable", options.variable);
  if (!options.command.empty() + !options.file.empty() + options.from_stdin != 1)
    throw Error(Code::invalid_argument, "say where the secret comes from",
                "one of --from-command, --from-file and --from-stdin");
  if (!options.command.empty()) request.add("command", options.command);
  if (!options.file.empty()) request.add("file", std::filesystem::absolute(options.file).string());
  if (options.from_stdin) {
    const Json key = Json::parse(context.api().get("/v1/credentials/key"));
    request.add("sealed", base64_encode(encrypted(read_secret(context, options.form == "ssh-key"),
                                                  key.text("certificate"))));
  }
  const auto added =
      context.parse_or_print(context.api().send("POST", "/v1/credentials", request.str()));
  if (!added) return;
  print_credential(context, *added);
  warn_of_graphql(context, *added);
}

std::string source_of(const Json& credential) {
  if (credential.has("command")) return "command: " + credential.text("command");
  if (credential.has("file")) return "file: " + credential.text("file");
  return "kept encrypted";
}

int list(Context& context) {
  const auto answer = context.parse_or_print(context.api().get("/v1/credentials"));
  if (!answer) return 0;
  Table table({"NAME", "USER", shrinks("FOR"), "AS", shrinks("FROM")});
  for (const Json& credential : answer->items("credentials")) {
    std::string urls;
    for (const std::string& url : credential.byte_list("for"))
      urls += (urls.empty() ? "" : " ") + url;
    table.add({credential.text("name"), credential.text("user"), urls, credential.text("as"),
               source_of(credential)});
  }
  table.empty() ? context.print("No credentials.\n") : context.print_table(table);
  return 0;
}

struct NameOptions {
  std::string name;
  void declare(Options& options) { options.argument({"NAME", "", "The credential"}, name); }
};

void remove(Context& context, const NameOptions& options) {
  context.api().send("DELETE", "/v1/credentials/" + percent_encode(options.name), "");
}

void test(Context& context, const NameOptions& options) {
  const auto answer = context.parse_or_print(context.api().send(
      "POST", "/v1/credentials/" + percent_encode(options.name) + "/test", "{}"));
  if (answer) context.print("The secret of " + options.name + " can be read.\n");
}

}  // namespace

Action credential_add_command(Options& options) { return run_with<AddOptions>(options, add); }
Action credential_ls_command(Options&) { return list; }
Action credential_rm_command(Options& options) { return run_with<NameOptions>(options, remove); }
Action credential_test_command(Options& options) { return run_with<NameOptions>(options, test); }

}  // namespace moorage::cli

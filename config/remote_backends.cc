#include "config/remote_backends.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "config/node_reader.h"
#include "config/values.h"
#include "config/yaml_file.h"

namespace moorage::config {
namespace {

using Kind = YamlNode::Kind;

constexpr size_t kMaxHosts = 256;
constexpr size_t kMaxHostName = 32;
constexpr size_t kMaxCredentialName = 64;
constexpr size_t kMaxText = 255;
constexpr size_t kMaxUrl = 2048;
constexpr Range kSandboxes{1, 10'000};
constexpr std::string_view kLowerAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789";

[[noreturn]] void refuse(const std::string& text, const std::string& what) {
  throw Error(Code::invalid_argument, "\"" + text + "\" is not " + what);
}

bool consists_of(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kNameCharacters.find(c) != std::string_view::npos ||
           more.find(c) != std::string_view::npos;
  });
}

// Also an argument of commands, so it is never an option.
std::string parse_host_name(const std::string& text) {
  const std::string allowed = std::string(kLowerAndDigits) + "-";
  if (text.empty() || text.size() > kMaxHostName || text.front() == '-' ||
      text.find_first_not_of(allowed) != std::string::npos)
    refuse(text, "a name of 1-32 characters of a-z 0-9 -, with a letter or digit first");
  return text;
}

// As `moorage credential add` takes them.
std::string parse_credential_name(const std::string& text) {
  const bool begins = !text.empty() && kLowerAndDigits.find(text[0]) != std::string_view::npos;
  if (!begins || text.size() > kMaxCredentialName ||
      text.find_first_not_of(std::string(kLowerAndDigits) + ".-_") != std::string::npos)
    refuse(text, "a credential's name");
  return text;
}

// An argument of ssh, which may pass it on to a shell (ProxyCommand).
std::string parse_destination(const std::string& text) {
  if (text.empty() || text.size() > kMaxText || text.front() == '-' ||
      !consists_of(text, "@:/[]%+=") || text.find("@-") != std::string::npos)
    refuse(text, "a destination of ssh, such as agent@build1.example or a Host of its config_file");
  return text;
}

// An argument of a shell's script there; "~/" is the home of the user who logs in.
std::string parse_directory_there(const std::string& text) {
  const std::string_view rest = std::string_view(text).substr(text.starts_with("~/") ? 2 : 0);
  const bool has_root = text.starts_with("/") || text.starts_with("~/");
  if (!has_root || rest.empty() || text == "/" || text.size() > kMaxText ||
      !consists_of(rest, "/+=@") || rest.find("..") != std::string_view::npos)
    refuse(text, "a directory on that machine, such as /srv/moorage or ~/moorage");
  return text;
}

// Parts of requests and of the Dockerfile that Daytona makes of an image.
std::string parse_provider_name(const std::string& text) {
  if (text.empty() || text.size() > kMaxText || text.front() == '-' || !consists_of(text, "@:/+="))
    refuse(text, "a name: letters, digits and . _ - / : @ + =");
  return text;
}

std::string parse_url(const std::string& text) {
  const bool has_scheme = text.starts_with("https://") || text.starts_with("http://");
  if (text.find('@') != std::string::npos)  // not shown: it may be a password
    throw Error(Code::invalid_argument, "a URL with a user name or password is not supported",
                "name a credential or a key_file");
  if (!has_scheme || text.size() > kMaxUrl || !consists_of(text, ":/[]%"))
    refuse(text.substr(0, kMaxText), "a URL such as https://api.example.com");
  return text;
}

bool is_in_the_clear(std::string_view url) {
  constexpr std::string_view kPlain = "http://";
  if (!url.starts_with(kPlain)) return false;
  const std::string_view rest = url.substr(kPlain.size());
  const std::string_view host = rest.substr(0, rest.find_first_of(":/"));
  return host != "localhost" && !host.starts_with("127.") && !rest.starts_with("[::1]");
}

std::string parse_on_stop(const std::string& text) {
  if (text == "pause" || text == "kill") return text;
  throw Error(Code::invalid_argument, "it must be pause or kill");
}

struct DriverSetting {
  enum class Shape { url, name, host, path, flag, number, on_stop };
  std::string_view name;
  Shape shape = Shape::name;
  Range range{};
};

// link/drivers/e2b.h
const std::vector<DriverSetting>& e2b_settings() {
  using Shape = DriverSetting::Shape;
  static const std::vector<DriverSetting> all{
      {"api_url", Shape::url},    {"sandbox_url", Shape::url},
      {"domain", Shape::host},    {"template", Shape::name},
      {"user", Shape::name},      {"directory", Shape::path},
      {"ca_file", Shape::path},   {"allow_plain_http", Shape::flag},
      {"on_stop", Shape::on_stop}};
  return all;
}

// link/drivers/daytona.h
const std::vector<DriverSetting>& daytona_settings() {
  using Shape = DriverSetting::Shape;
  static const std::vector<DriverSetting> all{{"api_url", Shape::url},
                                              {"toolbox_url", Shape::url},
                                              {"snapshot", Shape::name},
                                              {"image", Shape::name},
                                              {"target", Shape::name},
                                              {"organization", Shape::name},
                                              {"user", Shape::name},
                                              {"cpu", Shape::number, {1, 1024}},
                                              {"memory_gb", Shape::number, {1, 65'536}},
                                              {"disk_gb", Shape::number, {1, 1'048'576}},
                                              {"directory", Shape::path},
                                              {"volume", Shape::name},
                                              {"auto_stop_min", Shape::number, {2, 10'080}},
                                              {"ca_file", Shape::path},
                                              {"allow_plain_http", Shape::flag},
                                              {"on_stop", Shape::on_stop}};
  return all;
}

class BackendsReader {
 public:
  explicit BackendsReader(const std::string& file) : yaml_(file) {}

  RemoteBackends read(const YamlNode& section) {
    check_map(section, "\"backends\" must be a section with the keys ssh, e2b, daytona");
    yaml_.read_fields(
        section, "backends",
        {{"ssh", [this](const YamlNode& node) { read_ssh(node); }},
         {"e2b", [this](const YamlNode& node) { all_.e2b = read_provider(node, e2b_settings()); }},
         {"daytona", [this](const YamlNode& node) {
            all_.daytona = read_provider(node, daytona_settings());
            if (all_.daytona->driver.contains("snapshot") && all_.daytona->driver.contains("image"))
              yaml_.refuse(node, "backends.daytona has both a snapshot and an image",
                           "Remove one: a sandbox is made of either.");
          }}});
    return std::move(all_);
  }

 private:
  void check_map(const YamlNode& node, const std::string& why) const {
    if (node.kind != Kind::map) yaml_.refuse(node, why);
  }

  // One line of `config show`: what `items` are in the file.
  static std::string shown(const YamlNode& node) {
    if (node.kind == Kind::scalar) return plain_text(node.text);
    std::string text;
    for (const YamlNode& item : node.items) {
      text += text.empty() ? "" : ", ";
      if (node.kind == Kind::map) text += item.key + ": ";
      text += shown(item);
    }
    return node.kind == Kind::map ? "{" + text + "}" : "[" + text + "]";
  }

  void show(const YamlNode& node) {
    all_.shown.push_back({"backends." + node.key, shown(node), yaml_.place(node)});
  }

  NodeReader::Field text(const char* name, std::string& to,
                         std::string (*parse)(const std::string&)) const {
    return {name, [this, &to, parse](const YamlNode& node) { to = yaml_.parsed(node, parse); }};
  }

  NodeReader::Field path(const char* name, std::string& to) const {
    return {name, [this, &to](const YamlNode& node) { to = yaml_.parsed(node, parse_path); }};
  }

  NodeReader::Field most(uint32_t& to) const {
    return {"max_sandboxes", [this, &to](const YamlNode& node) {
              to = static_cast<uint32_t>(yaml_.parsed(
                  node, [](const std::string& v) { return parse_integer(v, kSandboxes); }));
            }};
  }

  void read_ssh(const YamlNode& node) {
    check_map(node, "\"ssh\" must be a section with the keys hosts, config_file");
    SshBackendSettings& ssh = all_.ssh.emplace();
    yaml_.read_fields(node, "backends.ssh",
                      {path("config_file", ssh.config_file),
                       {"hosts", [&](const YamlNode& hosts) { read_hosts(hosts, ssh.hosts); }}});
    if (ssh.hosts.empty())
      yaml_.refuse(node, "backends.ssh has no hosts",
                   "For instance: hosts: [{name: build1, destination: agent@build1.example}]");
    show(node);
  }

  void read_hosts(const YamlNode& node, std::vector<SshHostSettings>& hosts) {
    if (node.kind != Kind::list)
      yaml_.refuse(node, "\"hosts\" must be a list: [{name: a, destination: user@host}]");
    if (node.items.size() > kMaxHosts)
      yaml_.refuse(node, "\"hosts\" has more than " + std::to_string(kMaxHosts) + " items");
    for (const YamlNode& item : node.items) {
      check_map(item, "a host is a map: {name: a, destination: user@host}");
      SshHostSettings host;
      yaml_.read_fields(
          item, "a host of backends.ssh",
          {text("name", host.name, parse_host_name),
           text("destination", host.destination, parse_destination),
           text("directory", host.directory, parse_directory_there), most(host.max_sandboxes)});
      if (host.name.empty() || host.destination.empty())
        yaml_.refuse(item, "a host needs a name and a destination");
      const bool known = std::any_of(hosts.begin(), hosts.end(),
                                     [&](const auto& other) { return other.name == host.name; });
      if (known) yaml_.refuse(item, "there are two hosts named \"" + host.name + "\"");
      hosts.push_back(std::move(host));
    }
  }

  ProviderSettings read_provider(const YamlNode& node, const std::vector<DriverSetting>& known) {
    check_map(node, "\"" + node.key + "\" must be a section with a credential");
    ProviderSettings provider;
    std::vector<NodeReader::Field> fields{
        text("credential", provider.credential, parse_credential_name),
        path("key_file", provider.key_file), most(provider.max_sandboxes)};
    for (const DriverSetting& setting : known) {
      fields.push_back({setting.name, [this, &provider, &setting](const YamlNode& value) {
                          read_setting(value, setting, provider);
                        }});
    }
    yaml_.read_fields(node, "backends." + node.key, fields);
    if (provider.key_file.empty() == provider.credential.empty())
      yaml_.refuse(node,
                   "backends." + node.key +
                       (provider.key_file.empty() ? " has no credential"
                                                  : " has both a credential and a key_file"),
                   "Name the credential of root that has the API key, or its file as key_file.");
    const auto plain = provider.driver.find("allow_plain_http");
    if (plain == provider.driver.end() || !std::get<bool>(plain->second)) check_urls(node);
    show(node);
    return provider;
  }

  void read_setting(const YamlNode& node, const DriverSetting& setting,
                    ProviderSettings& provider) const {
    auto& value = provider.driver[std::string(setting.name)];
    switch (setting.shape) {
      case DriverSetting::Shape::url:
        value = yaml_.parsed(node, parse_url);
        break;
      case DriverSetting::Shape::name:
        value = yaml_.parsed(node, parse_provider_name);
        break;
      case DriverSetting::Shape::host:
        value = yaml_.parsed(node, parse_host);
        break;
      case DriverSetting::Shape::path:
        value = yaml_.parsed(node, parse_path);
        break;
      case DriverSetting::Shape::flag:
        value = yaml_.parsed(node, parse_flag);
        break;
      case DriverSetting::Shape::on_stop:
        value = yaml_.parsed(node, parse_on_stop);
        break;
      case DriverSetting::Shape::number:
        value = yaml_.parsed(node, [&](const std::string& text) {
          return static_cast<int64_t>(parse_integer(text, setting.range));
        });
        break;
    }
  }

  void check_urls(const YamlNode& provider) const {
    for (const YamlNode& item : provider.items) {
      if (is_in_the_clear(item.text))
        yaml_.refuse(item, item.key + ": http sends the key unencrypted",
                     "Use https, or set allow_plain_http: true in a network that you trust.");
    }
  }

  const NodeReader yaml_;
  RemoteBackends all_;
};

}  // namespace

RemoteBackends read_remote_backends(const std::string& file, const YamlNode& section) {
  if (section.kind == Kind::null) return {};
  return BackendsReader(file).read(section);
}

}  // namespace moorage::config

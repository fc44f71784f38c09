// SPDX-License-Identifier: Apache-2.0
// plan_json.cc: plans as JSON. The JSON library throws where a type is not the one asked for; here
// every type is looked at before, and text is parsed by the form that does not throw.

#include "plan/plan_json.h"

#include <fmt/format.h>

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "plan/validate.h"

namespace ciuic::plan {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxText = size_t{256} << 20;
constexpr int kMaxDepth = 16;

Status wrong(const std::string& where, std::string_view what) {
  return Status(StatusCode::kInvalidArgument, fmt::format("plan file: {}: {}", where, what));
}

Json range_json(BlockRange range) {
  return Json::array({name_of(range.space), range.first, range.count});
}

Json step_json(const Step& step) {
  Json json;
  json["kind"] = name_of(step.kind);
  if (step.kind != StepKind::kCopy) json["peers"] = step.peers;
  if (step.lane != 0) json["lane"] = step.lane;
  if (step.kind != StepKind::kReceive) json["source"] = range_json(step.source);
  if (step.kind != StepKind::kSend) json["target"] = range_json(step.target);
  if (step.own_place != 0) json["own_place"] = step.own_place;
  if (step.received_raw) json["received_raw"] = true;
  if (step.final) json["final"] = true;
  return json;
}

Json plan_json(const Plan& plan) {
  Json json;
  json["algorithm"] = plan.algorithm;
  json["input_offset"] = plan.input_offset;
  if (!plan.allows_in_place) json["allows_in_place"] = false;
  for (int space = 0; space < kSpaces; ++space) {
    const Partition& partition = plan.partitions[space];
    Json& part = json["partitions"][name_of(static_cast<Space>(space))];
    part["blocks"] = partition.blocks;
    part["unit"] = partition.unit == Partition::Unit::kSplit ? "split" : "each";
    if (partition.first != 0) part["first"] = partition.first;
    if (!partition.owners.empty()) part["owners"] = partition.owners;
  }
  json["steps"] = Json::array();
  for (const Step& step : plan.steps) json["steps"].push_back(step_json(step));
  return json;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// An object whose fields are taken one by one; at the end none may be left.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  Status check(std::initializer_list<const char*> known) const {
    if (!json_.is_object()) return wrong(where_, "not an object");
    for (const auto& item : json_.items()) {
      bool is_known = false;
      for (const char* name : known) is_known |= item.key() == name;
      if (!is_known)
        return wrong(where_, fmt::format("unknown field '{}'", printable(item.key(), 40)));
    }
    return {};
  }

  const Json* find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() ? nullptr : &*found;
  }

  // Takes a whole number; a missing one leaves `value` as it is.
  Status take(const char* name, int64_t least, int64_t most, int* value) const {
    const Json* json = find(name);
    if (json == nullptr) return {};
    // A number over the signed range would turn negative, which is refused as well.
    if (!json->is_number_integer() || json->get<int64_t>() < least || json->get<int64_t>() > most) {
      return wrong(where_, fmt::format("{} must be from {} to {}", name, least, most));
    }
    *value = static_cast<int>(json->get<int64_t>());
    return {};
  }

  Status take(const char* name, bool* value) const {
    const Json* json = find(name);
    if (json == nullptr) return {};
    if (!json->is_boolean()) return wrong(where_, fmt::format("{} must be true or false", name));
    *value = json->get<bool>();
    return {};
  }

  Status take(const char* name, std::string* value) const {
    const Json* json = find(name);
    if (json == nullptr || !json->is_string()) {
      return wrong(where_, fmt::format("{} must be a text", name));
    }
    *value = json->get<std::string>();
    return {};
  }

  // A list that must be there.
  Status take_list(const char* name, const Json** list) const {
    *list = find(name);
    if (*list == nullptr || !(*list)->is_array()) {
      return wrong(where_, fmt::format("{} must be a list", name));
    }
    return {};
  }

  Status take_ranks(const char* name, int size, std::vector<int>* ranks) const {
    const Json* list = nullptr;
    CIUIC_RETURN_IF_ERROR(take_list(name, &list));
    for (const Json& rank : *list) {
      if (!rank.is_number_integer() || rank.get<int64_t>() < 0 || rank.get<int64_t>() >= size) {
        return wrong(where_, fmt::format("{} must be ranks below {}", name, size));
      }
      ranks->push_back(static_cast<int>(rank.get<int64_t>()));
    }
    return {};
  }

  Status take_range(const char* name, BlockRange* range) const {
    const Json* list = nullptr;
    CIUIC_RETURN_IF_ERROR(take_list(name, &list));
    const std::string must = fmt::format("{} must be [space, first, count]", name);
    if (list->size() != 3 || !(*list)[0].is_string()) return wrong(where_, must);
    int numbers[2] = {0, 0};
    for (int index = 0; index < 2; ++index) {
      const Json& number = (*list)[index + 1];
      if (!number.is_number_integer() || number.get<int64_t>() < 0 ||
          number.get<int64_t>() > kMaxBlocks) {
        return wrong(where_, must);
      }
      numbers[index] = static_cast<int>(number.get<int64_t>());
    }
    for (int space = 0; space < kSpaces; ++space) {
      if ((*list)[0].get<std::string>() != name_of(static_cast<Space>(space))) continue;
      *range = {static_cast<Space>(space), numbers[0], numbers[1]};
      return {};
    }
    return wrong(where_, must);
  }

  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  const std::string where_;
};

Status read_kind(const Fields& fields, StepKind* kind) {
  std::string name;
  CIUIC_RETURN_IF_ERROR(fields.take("kind", &name));
  for (const StepKind known :
       {StepKind::kSend, StepKind::kReceive, StepKind::kReduce, StepKind::kCopy}) {
    if (name != name_of(known)) continue;
    *kind = known;
    return {};
  }
  return wrong(fields.where(), "kind must be send, receive, reduce or copy");
}

Status read_step(const Json& json, const std::string& where, int size, Step* step) {
  const Fields fields(json, where);
  if (!json.is_object()) return wrong(where, "not an object");
  CIUIC_RETURN_IF_ERROR(read_kind(fields, &step->kind));
  switch (step->kind) {
    case StepKind::kSend:
      CIUIC_RETURN_IF_ERROR(fields.check({"kind", "peers", "lane", "source"}));
      break;
    case StepKind::kReceive:
      CIUIC_RETURN_IF_ERROR(fields.check({"kind", "peers", "lane", "target"}));
      break;
    case StepKind::kReduce:
      CIUIC_RETURN_IF_ERROR(fields.check(
          {"kind", "peers", "lane", "source", "target", "own_place", "received_raw", "final"}));
      break;
    case StepKind::kCopy: CIUIC_RETURN_IF_ERROR(fields.check({"kind", "source", "target"})); break;
  }
  CIUIC_RETURN_IF_ERROR(fields.take("lane", 0, kMaxLane, &step->lane));
  CIUIC_RETURN_IF_ERROR(fields.take("own_place", 0, size, &step->own_place));
  CIUIC_RETURN_IF_ERROR(fields.take("received_raw", &step->received_raw));
  CIUIC_RETURN_IF_ERROR(fields.take("final", &step->final));
  step->source = step->target = nothing();
  if (step->kind != StepKind::kReceive) {
    CIUIC_RETURN_IF_ERROR(fields.take_range("source", &step->source));
  }
  if (step->kind != StepKind::kSend) {
    CIUIC_RETURN_IF_ERROR(fields.take_range("target", &step->target));
  }
  if (step->kind == StepKind::kCopy) return {};
  return fields.take_ranks("peers", size, &step->peers);
}

Status read_partitions(const Json* json, const std::string& where, int size, Plan* plan) {
  if (json == nullptr) return wrong(where, "partitions are missing");
  const Fields spaces(*json, where + ", partitions");
  CIUIC_RETURN_IF_ERROR(spaces.check({"input", "output", "scratch"}));
  for (int space = 0; space < kSpaces; ++space) {
    const char* name = name_of(static_cast<Space>(space));
    const Json* part = spaces.find(name);
    if (part == nullptr) continue;
    const Fields fields(*part, where + ", partition " + name);
    CIUIC_RETURN_IF_ERROR(fields.check({"blocks", "unit", "first", "owners"}));
    CIUIC_RETURN_IF_ERROR(fields.take("blocks", 0, kMaxBlocks, &plan->partitions[space].blocks));
    CIUIC_RETURN_IF_ERROR(fields.take("first", 0, size - 1, &plan->partitions[space].first));
    if (fields.find("owners") != nullptr) {
      CIUIC_RETURN_IF_ERROR(fields.take_ranks("owners", size, &plan->partitions[space].owners));
    }
    std::string unit;
    CIUIC_RETURN_IF_ERROR(fields.take("unit", &unit));
    if (unit != "split" && unit != "each") {
      return wrong(fields.where(), "unit must be split or each");
    }
    plan->partitions[space].unit =
        unit == "split" ? Partition::Unit::kSplit : Partition::Unit::kEach;
  }
  return {};
}

Status read_plan(const Json& json, int size, int rank, Plan* plan) {
  const std::string where = fmt::format("rank {}", rank);
  const Fields fields(json, where);
  CIUIC_RETURN_IF_ERROR(
      fields.check({"algorithm", "input_offset", "allows_in_place", "partitions", "steps"}));
  CIUIC_RETURN_IF_ERROR(fields.take("algorithm", &plan->algorithm));
  if (plan->algorithm.size() > 64) return wrong(where, "algorithm has more than 64 bytes");
  CIUIC_RETURN_IF_ERROR(fields.take("input_offset", -kMaxBlocks, kMaxBlocks, &plan->input_offset));
  CIUIC_RETURN_IF_ERROR(fields.take("allows_in_place", &plan->allows_in_place));
  CIUIC_RETURN_IF_ERROR(read_partitions(fields.find("partitions"), where, size, plan));
  const Json* steps = nullptr;
  CIUIC_RETURN_IF_ERROR(fields.take_list("steps", &steps));
  if (steps->size() > static_cast<size_t>(kMaxSteps)) return wrong(where, "too many steps");
  plan->steps.resize(steps->size());
  for (size_t number = 0; number < steps->size(); ++number) {
    CIUIC_RETURN_IF_ERROR(read_step((*steps)[number], fmt::format("rank {}, step {}", rank, number),
                                    size, &plan->steps[number]));
  }
  CIUIC_RETURN_IF_ERROR(validate(*plan, size, rank));
  plan->finish();
  return {};
}

// The parser calls itself for each level; so deep text could use up the stack.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t index = 0; index < text.size(); ++index) {
    const char byte = text[index];
    if (quoted && byte == '\\') ++index;
    if (byte == '"') quoted = !quoted;
    if (quoted) continue;
    if (byte == '[' || byte == '{') ++depth;
    if (byte == ']' || byte == '}') --depth;
    if (depth > kMaxDepth) return true;
  }
  return false;
}

Result<Json> parse(std::string_view text) {
  if (text.size() > kMaxText) return wrong("text", "too long");
  if (is_too_deep(text)) return wrong("text", "too many levels of brackets");
  Json json = Json::parse(text.begin(), text.end(), /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return wrong("text", "not JSON");
  return json;
}

}  // namespace

std::string to_json(const Plan& plan) { return dump(plan_json(plan)); }

std::string to_json(const PlanFile& file) {
  Json json;
  json["operation"] = name_of(file.operation);
  json["layout"] = file.layout.text();
  json["root"] = file.root;
  json["plans"] = Json::array();
  for (const Plan& plan : file.plans) json["plans"].push_back(plan_json(plan));
  return dump(json);
}

Result<Plan> plan_from_json(std::string_view text, int size, int rank) {
  const Result<Json> json = parse(text);
  if (!json.ok()) return json.status();
  Plan plan;
  CIUIC_RETURN_IF_ERROR(read_plan(*json, size, rank, &plan));
  return plan;
}

Result<PlanFile> plan_file_from_json(std::string_view text) {
  const Result<Json> json = parse(text);
  if (!json.ok()) return json.status();
  const Fields fields(*json, "file");
  CIUIC_RETURN_IF_ERROR(fields.check({"operation", "layout", "root", "plans"}));
  PlanFile file;
  std::string name;
  CIUIC_RETURN_IF_ERROR(fields.take("operation", &name));
  const std::optional<Operation> operation = operation_named(name);
  if (!operation) return wrong("file", fmt::format("no operation '{}'", printable(name, 40)));
  file.operation = *operation;
  CIUIC_RETURN_IF_ERROR(fields.take("layout", &name));
  Result<Layout> layout = Layout::parse(name);
  if (!layout.ok()) return layout.status();
  file.layout = std::move(*layout);
  const int size = file.layout.size();
  CIUIC_RETURN_IF_ERROR(fields.take("root", 0, size - 1, &file.root));
  const Json* plans = nullptr;
  CIUIC_RETURN_IF_ERROR(fields.take_list("plans", &plans));
  if (plans->size() != static_cast<size_t>(size)) {
    return wrong("file", fmt::format("{} plans for {} ranks", plans->size(), size));
  }
  file.plans.resize(plans->size());
  for (int rank = 0; rank < size; ++rank) {
    CIUIC_RETURN_IF_ERROR(read_plan((*plans)[rank], size, rank, &file.plans[rank]));
  }
  return file;
}

}  // namespace ciuic::plan

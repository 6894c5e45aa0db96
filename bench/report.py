def save(result):
    import json

    open("/tmp/w/result.json", "w").write(json.dumps(result, indent=1))

/* The picture of a plan: one page without any other file. Memory over the instructions of each program, a rectangle a block of
 * bytes: x are the instructions it lives through, y are its addresses, its colour is its class. Persistent values stand at the
 * addresses before the transient ones and last as long as the program.
 *
 * The page gets the rectangles as numbers and draws them into SVG; names are a table, as a step has many blocks of one name. */
#include <string.h>

#include "base/str.h"
#include "plan/plan.h"

static const char page_begin[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>snug plan</title>\n<style>\n"
    "body{font:14px system-ui,sans-serif;margin:24px;color:#222;background:#fff}\n"
    "svg{background:#f4f4f4;width:100%;height:420px;display:block;border:1px solid #ccc;box-sizing:border-box}\n"
    "rect{shape-rendering:crispEdges}rect:hover{stroke:#000;stroke-width:2;vector-effect:non-scaling-stroke}\n"
    "line{stroke:#000;stroke-dasharray:4 3;vector-effect:non-scaling-stroke}h2{font-size:1.1em;margin:24px 0 8px}\n"
    ".chart{display:grid;grid-template-columns:84px 1fr;font-size:12px}.y,.x{display:flex;justify-content:space-between}\n"
    ".y{flex-direction:column;text-align:right;padding-right:8px;margin:-7px 0}.x{grid-column:2;padding-top:3px}\n"
    "#tip{position:fixed;pointer-events:none;background:#222;color:#fff;padding:4px 8px;border-radius:4px;white-space:pre;display:none}\n"
    ".key span{display:inline-block;margin-right:16px}.key i{display:inline-block;width:12px;height:12px;margin-right:5px}\n"
    "table{border-collapse:collapse}td{padding:2px 14px 2px 0;text-align:right}td:first-child{text-align:left}\n"
    "tr.sum td{border-top:1px solid #999}\n"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}svg{background:#262626;border-color:#444}line{stroke:#fff}\n"
    "rect:hover{stroke:#fff}}\n"
    "</style></head><body>\n<h1>Memory over the step</h1>\n<p id=\"sum\"></p><table id=\"bill\"></table><p class=\"key\" "
    "id=\"key\"></p><div id=\"all\"></div>"
    "<div id=\"tip\"></div>\n<script>\nconst plan=";

static const char page_end[] =
    ";\n"
    "const colors=['#4878a8','#d65f5f','#e2a03f','#6aa84f','#8e6bbf','#3fb8b0','#b07d48','#c774b2','#999999'];\n"
    "const size=b=>b<1024?b+' B':b<1048576?(b/1024).toFixed(1)+' KiB':b<1073741824?(b/1048576).toFixed(2)+' "
    "MiB':(b/1073741824).toFixed(2)+' GiB';\n"
    "const el=(n,t)=>{const e=document.createElement(n);if(t!==undefined)e.textContent=t;return e};\n"
    "const id=n=>document.getElementById(n),tip=id('tip'),ns='http://www.w3.org/2000/svg';\n"
    "id('sum').textContent='Total '+size(plan.total)+' = '+plan.total.toLocaleString('en')+' bytes, of them '+size(plan.reserved)+"
    "' reserved. The peak is in '+plan.peak_program+' at '+plan.peak_op+'.';\n"
    "plan.classes.forEach((c,i)=>{if(!plan.by_class[i])return;const "
    "s=el('span'),k=el('i');k.style.background=colors[i];s.append(k,c);id('key').append(s);\n"
    "row(c,plan.by_class[i])});\n"
    "row('reserved',plan.reserved);row('total',plan.total).className='sum';\n"
    "function row(name,bytes){const r=el('tr');r.append(el('td',name),el('td',size(bytes)));id('bill').append(r);return r}\n"
    "const highs=plan.tiers.map((_,t)=>{let h=plan.persistent_bytes[t];for(const p of plan.programs)for(const l of p.lives)\n"
    "if(l[5]===t)h=Math.max(h,l[2]+l[3]);return h});\n"
    "function peak(p,lives){const d=new Array(p.ops.length+2).fill(0);for(const l of lives){d[l[0]]+=l[3];d[l[1]+1]-=l[3]}\n"
    "let sum=0,most=-1,at=0;for(let k=0;k<p.ops.length;k++){sum+=d[k];if(sum>most){most=sum;at=k}}return at}\n"
    "function draw(p,tier){const "
    "lives=p.lives.filter(l=>l[5]===tier),own=plan.persistent.filter(l=>l[3]===tier);if(!lives.length&&!own.length)return;\n"
    "const high=highs[tier];let most=plan.persistent_bytes[tier];for(const l of lives)most=Math.max(most,l[2]+l[3]);\n"
    "id('all').append(el('h2',p.name+', '+plan.tiers[tier]+' memory: '+size(most)+', '+p.ops.length+' instructions'));\n"
    "const svg=document.createElementNS(ns,'svg'),steps=Math.max(1,p.ops.length),W=1000,H=1000;\n"
    "svg.setAttribute('viewBox','0 0 '+W+' '+H);svg.setAttribute('preserveAspectRatio','none');\n"
    "const add=(f,t,o,b,c,n)=>{const "
    "r=document.createElementNS(ns,'rect');r.setAttribute('x',f*W/steps);r.setAttribute('width',Math.max((t-f)*W/steps,1));\n"
    "r.setAttribute('y',H-(o+b)*H/high);r.setAttribute('height',b*H/"
    "high);r.setAttribute('fill',colors[c]);r.dataset.tip=n;svg.append(r)};\n"
    "for(const l of own)add(0,steps,l[0],l[1],l[2],plan.names[l[4]]+'\\n'+plan.classes[l[2]]+', '+size(l[1])+' at '+l[0]);\n"
    "for(const l of lives)add(l[0],l[1]+1,l[2],l[3],l[4],plan.names[l[6]]+'\\n'+plan.classes[l[4]]+', '+size(l[3])+' at '+l[2]+"
    "'\\nfrom '+l[0]+' '+plan.names[p.ops[l[0]]]+'\\nto '+l[1]+' '+plan.names[p.ops[l[1]]]);\n"
    "if(p.name===plan.peak_program&&lives.length){const "
    "x=(peak(p,lives)+.5)*W/steps,l=document.createElementNS(ns,'line');l.setAttribute('x1',x);l.setAttribute('x2',x);\n"
    "l.setAttribute('y2',H);l.dataset.tip='the peak, in '+plan.peak_op;svg.append(l)}\n"
    "const chart=el('div'),y=el('div'),x=el('div');chart.className='chart';y.className='y';x.className='x';\n"
    "for(let k=4;k>=0;k--)y.append(el('span',size(Math.round(high*k/4))));\n"
    "x.append(el('span','instruction 0'),el('span','addresses upwards, instructions to the right; point at a block for its name'),"
    "el('span',p.ops.length));\n"
    "chart.append(y,svg,x);id('all').append(chart)}\n"
    "for(const p of plan.programs)for(let t=0;t<plan.tiers.length;t++)draw(p,t);\n"
    "document.addEventListener('mousemove',e=>{const "
    "t=e.target.dataset&&e.target.dataset.tip;tip.style.display=t?'block':'none';if(!t)return;\n"
    "tip.textContent=t;tip.style.left=Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8)+'px';tip.style.top=Math.min(e.clientY+14,"
    "innerHeight-tip.offsetHeight-8)+'px'});\n"
    "</script></body></html>\n";

/* "</script" inside a name would end the script: "<" is written as an escape. */
static void add_name(sn_str *out, const char *name) {
    sn_str text = {0};
    sn_str_json(&text, name, strlen(name));
    if (text.failed) out->failed = true;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '<') sn_str_add(out, "\\u003c");
        else sn_str_char(out, text.data[i]);
    }
    sn_str_free(&text);
}

/* Names are written after the rectangles, in the order in which they were given numbers. */
typedef struct name_list {
    sn_str text;
    uint32_t count;
} name_list;

static uint32_t put_name(name_list *names, const char *name) {
    if (names->count) sn_str_char(&names->text, ',');
    add_name(&names->text, name ? name : "?");
    return names->count++;
}

static void add_persistent(const sn_plan *plan, const sn_job *job, name_list *names, sn_str *out) {
    const char *between = "";
    sn_str_add(out, "\"persistent\":[");
    for (size_t i = 0; i < plan->n_persistent; i++) {
        const sn_placed *p = &plan->persistent[i];
        if (p->within || p->turn > 0) continue;
        sn_str_printf(out, "%s[%llu,%llu,%d,%d,%u]", between, (unsigned long long)p->offset, (unsigned long long)p->bytes,
                      (int)job->persistent[i].class_of, (int)p->tier, put_name(names, job->persistent[i].name));
        between = ",";
    }
    sn_str_add(out, "]");
}

static const char *name_of(const sn_graph *g, const sn_life *l) {
    if (l->value == SN_NONE) return "scratch";
    const sn_value *v = &g->values[l->value];
    return v->name ? v->name : v->producer == SN_NONE ? "input" : g->nodes[v->producer].name;
}

static void add_program(const sn_planned *p, const sn_graph *g, name_list *names, sn_str *out) {
    uint32_t first = names->count;
    sn_str_add(out, "{\"name\":");
    add_name(out, p->program.name);
    for (uint32_t k = 0; k < p->program.count; k++) put_name(names, p->program.instrs[k].name);
    sn_str_add(out, ",\"ops\":[");
    for (uint32_t k = 0; k < p->program.count; k++) sn_str_printf(out, "%s%u", k ? "," : "", first + k);
    sn_str_add(out, "],\"lives\":[");
    const char *between = "";
    for (size_t i = 0; i < p->n_lives; i++) {
        const sn_life *l = &p->lives[i];
        if (!sn_in_turn(l->turns, 0)) continue; /* of turns the first is drawn, in which backward is the longest */
        sn_str_printf(out, "%s[%u,%u,%llu,%llu,%d,%d,%u]", between, l->first, l->last, (unsigned long long)l->offset,
                      (unsigned long long)l->bytes, (int)l->class_of, (int)l->tier, put_name(names, name_of(g, l)));
        between = ",";
    }
    sn_str_add(out, "]}");
}

void sn_plan_html(const sn_plan *plan, const sn_job *job, sn_str *out) {
    const sn_bill *b = &plan->bill;
    name_list names = {0};
    sn_str_add(out, page_begin);
    sn_str_printf(out, "{\"total\":%llu,\"reserved\":%llu,\"peak_program\":", (unsigned long long)b->total,
                  (unsigned long long)b->reserved);
    add_name(out, b->peak_program);
    sn_str_add(out, ",\"peak_op\":");
    add_name(out, b->peak_op);
    sn_str_add(out, ",\"classes\":[");
    for (int c = 0; c < SN_CLASS_COUNT; c++) sn_str_printf(out, "%s\"%s\"", c ? "," : "", sn_class_name((sn_class)c));
    sn_str_add(out, "],\"by_class\":[");
    for (int c = 0; c < SN_CLASS_COUNT; c++)
        sn_str_printf(out, "%s%llu", c ? "," : "", (unsigned long long)(b->by_class[SN_TIER_DEVICE][c] + b->by_class[SN_TIER_HOST][c]));
    sn_str_add(out, "],\"tiers\":[");
    for (int t = 0; t < SN_TIER_COUNT; t++) sn_str_printf(out, "%s\"%s\"", t ? "," : "", sn_tier_name((sn_tier)t));
    sn_str_add(out, "],\"persistent_bytes\":[");
    for (int t = 0; t < SN_TIER_COUNT; t++) sn_str_printf(out, "%s%llu", t ? "," : "", (unsigned long long)plan->persistent_bytes[t]);
    sn_str_add(out, "],\n");
    add_persistent(plan, job, &names, out);
    sn_str_add(out, ",\n\"programs\":[");
    for (int k = 0; k < plan->n_programs; k++) {
        if (k) sn_str_add(out, ",\n");
        add_program(&plan->programs[k], job->graphs[k], &names, out);
    }
    sn_str_add(out, "],\n\"names\":[");
    if (names.text.failed) out->failed = true;
    sn_str_append(out, names.text.data, names.text.size);
    sn_str_add(out, "]}");
    sn_str_add(out, page_end);
    sn_str_free(&names.text);
}
